"""What a caller gets: the Databricks serving API's replies and states."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving.schemas import InferenceTable, RateLimit, Tag, TrafficConfig

ConfigUpdate = Literal["NOT_UPDATING", "IN_PROGRESS", "UPDATE_FAILED", "UPDATE_CANCELED"]
Ready = Literal["READY", "NOT_READY"]
Deployment = Literal[
    "DEPLOYMENT_CREATING",
    "DEPLOYMENT_READY",
    "DEPLOYMENT_RECOVERING",
    "DEPLOYMENT_FAILED",
    "DEPLOYMENT_ABORTED",
]


class Reply(BaseModel):
    """What a caller gets."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class NotificationsReply(Reply):
    name: str
    email_notifications: dict[str, Any] | None = None


class RateLimitsReply(Reply):
    rate_limits: list[RateLimit]


class TagsReply(Reply):
    tags: list[Tag]


class EndpointState(Reply):
    ready: Ready
    config_update: ConfigUpdate


class EntityState(Reply):
    deployment: Deployment
    deployment_state_message: str = ""


class ServedEntityReply(Reply):
    name: str
    entity_name: str
    entity_version: str
    state: EntityState | None = None


class ConfigReply(Reply):
    config_version: int | None = None
    served_entities: list[ServedEntityReply] = Field(default_factory=list)
    traffic_config: TrafficConfig | None = None
    auto_capture_config: InferenceTable | None = None


class PendingConfigReply(ConfigReply):
    """`start_time` is in milliseconds since 1970."""

    start_time: int | None = None


class EndpointReply(Reply):
    """An endpoint as create, update and get return it."""

    name: str
    id: str
    creator: str
    creation_timestamp: int
    last_updated_timestamp: int
    state: EndpointState
    config: ConfigReply | None = None
    pending_config: PendingConfigReply | None = None
    tags: list[Tag] = Field(default_factory=list)


class EndpointList(Reply):
    endpoints: list[EndpointReply]


class Logs(Reply):
    logs: str


class ErrorBody(Reply):
    error_code: str
    message: str
