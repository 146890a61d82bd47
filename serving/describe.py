"""An Endpoint as the API shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.endpoint import Endpoint
from serving.replies import (
    ConfigReply,
    EndpointReply,
    EndpointState,
    PendingConfigReply,
    ServedEntityReply,
)
from serving.schemas import ServedEntityInput
from serving.served_entity import ServedEntity
from serving.store import ConfigRecord, EndpointRecord


def describe(endpoint: Endpoint) -> EndpointReply:
    """The whole endpoint: state, active config, pending config, tags."""
    record = endpoint.record
    state = EndpointState(
        ready="READY" if endpoint.ready else "NOT_READY", config_update=record.config_update
    )
    return EndpointReply(
        name=record.name,
        id=record.id,
        creator=record.creator,
        creation_timestamp=record.created_ms,
        last_updated_timestamp=record.updated_ms,
        state=state,
        config=_config(record.config, endpoint.active, record),
        pending_config=_pending(record.pending_config, endpoint.pending, record),
        tags=record.tags,
        **_settings(record),
    )


def _settings(record: EndpointRecord) -> dict[str, Any]:
    gateway = record.ai_gateway
    return {
        "description": record.description,
        "route_optimized": record.route_optimized,
        "permission_level": "CAN_MANAGE",
        "ai_gateway": gateway.model_dump(exclude_none=True) if gateway else None,
        "rate_limits": [limit.model_dump(exclude_none=True) for limit in record.rate_limits]
        or None,
        "email_notifications": record.email_notifications,
        "budget_policy_id": record.budget_policy_id,
        "telemetry_config": record.telemetry_config,
    }


def _pending(
    config: ConfigRecord | None, entities: Mapping[str, ServedEntity], record: EndpointRecord
) -> PendingConfigReply | None:
    shown = _config(config, entities, record)
    if config is None or shown is None:
        return None
    return PendingConfigReply(**dict(shown), start_time=config.created_ms)


def _config(
    config: ConfigRecord | None, entities: Mapping[str, ServedEntity], record: EndpointRecord
) -> ConfigReply | None:
    if config is None:
        return None
    served = [
        _entity(e, entities.get(e.name or ""), record, config) for e in config.served_entities
    ]
    return ConfigReply(
        config_version=config.config_version,
        served_entities=served,
        traffic_config=config.traffic_config,
        auto_capture_config=config.auto_capture_config,
    )


def _entity(
    entity: ServedEntityInput,
    live: ServedEntity | None,
    record: EndpointRecord,
    config: ConfigRecord,
) -> ServedEntityReply:
    return ServedEntityReply.model_validate(
        {
            **entity.model_dump(exclude_none=True),
            "creator": record.creator,
            "creation_timestamp": config.created_ms,
            "state": live.state if live else None,
        }
    )
