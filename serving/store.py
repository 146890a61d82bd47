"""What the endpoints are, kept in SQLite so that a restart finds them again."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from serving.errors import ApiError
from serving.replies import ConfigUpdate, EntityState
from serving.schemas import (
    AiGateway,
    EndpointConfig,
    EndpointCreate,
    InferenceTable,
    RateLimit,
    ServedEntityInput,
    Tag,
    TrafficConfig,
)

SCHEMA = "CREATE TABLE IF NOT EXISTS endpoint (name TEXT PRIMARY KEY, document TEXT NOT NULL)"


def now_ms() -> int:
    """Milliseconds since 1970, the API's clock."""
    return int(time.time() * 1000)


class ConfigRecord(BaseModel):
    """One numbered config: accepted, then either active, failed or replaced."""

    config_version: int
    served_entities: list[ServedEntityInput]
    traffic_config: TrafficConfig
    auto_capture_config: InferenceTable | None = None
    created_ms: int = Field(default_factory=now_ms)

    @classmethod
    def of(cls, config: EndpointConfig, version: int) -> ConfigRecord:
        """Number a checked config."""
        traffic = config.traffic_config or TrafficConfig(routes=[])
        return cls(
            config_version=version,
            served_entities=config.served_entities,
            traffic_config=traffic,
            auto_capture_config=config.auto_capture_config,
        )


class EndpointRecord(BaseModel):
    """Everything about an endpoint that must outlive the process."""

    model_config = ConfigDict(protected_namespaces=())

    name: str
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    creator: str = "local"
    created_ms: int = Field(default_factory=now_ms)
    updated_ms: int = Field(default_factory=now_ms)
    description: str | None = None
    route_optimized: bool = False
    tags: list[Tag] = Field(default_factory=list)
    rate_limits: list[RateLimit] = Field(default_factory=list)
    ai_gateway: AiGateway | None = None
    email_notifications: dict[str, Any] | None = None
    budget_policy_id: str | None = None
    telemetry_config: dict[str, Any] | None = None
    config: ConfigRecord | None = None
    pending_config: ConfigRecord | None = None
    config_update: ConfigUpdate = "NOT_UPDATING"
    failures: dict[str, EntityState] = Field(default_factory=dict)
    versions: int = 0

    @classmethod
    def of(cls, request: EndpointCreate) -> EndpointRecord:
        """The record of a new endpoint, with nothing rolled out yet."""
        return cls(
            name=request.name,
            description=request.description,
            route_optimized=bool(request.route_optimized),
            tags=request.tags or [],
            rate_limits=request.rate_limits or [],
            ai_gateway=request.ai_gateway,
            email_notifications=request.email_notifications,
            budget_policy_id=request.budget_policy_id,
            telemetry_config=request.telemetry_config,
        )


class Store:
    """Endpoint records by name. One server owns a state directory at a time."""

    def __init__(self, state_dir: Path) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        self._lock = _own(state_dir)
        self._db = sqlite3.connect(state_dir / "endpoints.sqlite", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(SCHEMA)

    def load(self) -> list[EndpointRecord]:
        """Every endpoint, oldest first."""
        rows = self._db.execute("SELECT document FROM endpoint ORDER BY rowid").fetchall()
        return [EndpointRecord.model_validate_json(document) for (document,) in rows]

    def save(self, record: EndpointRecord) -> None:
        """Write one endpoint whole; after this returns a crash cannot lose it."""
        self._db.execute(
            "INSERT INTO endpoint VALUES (?, ?)"
            " ON CONFLICT(name) DO UPDATE SET document = excluded.document",
            (record.name, record.model_dump_json(exclude_none=True)),
        )

    def delete(self, name: str) -> None:
        """Forget one endpoint."""
        self._db.execute("DELETE FROM endpoint WHERE name = ?", (name,))

    def close(self) -> None:
        """Give the state directory back."""
        self._db.close()
        os.close(self._lock)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _own(state_dir: Path) -> int:
    """Lock the directory for this process; the lock goes with the process, however it ends."""
    descriptor = os.open(state_dir / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ApiError(
            409,
            f"Another server uses the state directory {state_dir}: stop it, or use another one.",
        ) from None
    return descriptor
