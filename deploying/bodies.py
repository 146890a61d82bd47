"""A DesiredEndpoint as the request bodies that the API takes, by databricks-sdk's classes."""

from __future__ import annotations

import re
from typing import Any, Literal

from databricks.sdk.service.serving import (
    AiGatewayConfig,
    AiGatewayInferenceTableConfig,
    AiGatewayRateLimit,
    AiGatewayRateLimitRenewalPeriod,
    AiGatewayUsageTrackingConfig,
    EndpointCoreConfigInput,
    EndpointTag,
    Route,
    ServedEntityInput,
    TrafficConfig,
)

from deploying.desired import DesiredEndpoint, InferenceTable, RateLimit


def config_body(desired: DesiredEndpoint) -> dict[str, Any]:
    """What is served, on which compute, with which share."""
    routes = [
        Route(served_entity_name=served_name(desired, version), traffic_percentage=share)
        for version, share in desired.traffic.items()
    ]
    body = EndpointCoreConfigInput(
        name=desired.name,
        served_entities=[_entity(desired, version) for version in desired.traffic],
        traffic_config=TrafficConfig(routes),
    ).as_dict()
    del body["name"]
    return body


def gateway_body(desired: DesiredEndpoint) -> dict[str, Any]:
    """The AI Gateway settings that are wished for; those not named here stay as they are."""
    tracking, limits = desired.usage_tracking, desired.rate_limits
    gateway = AiGatewayConfig(
        inference_table_config=_inference_table(desired.inference_table),
        rate_limits=[_rate_limit(limit) for limit in limits or ()],
        usage_tracking_config=None if tracking is None else AiGatewayUsageTrackingConfig(tracking),
    ).as_dict()
    return {**gateway, "rate_limits": []} if limits == () else gateway


def tag_bodies(desired: DesiredEndpoint) -> list[dict[str, Any]]:
    """The tags."""
    return [EndpointTag(key, value).as_dict() for key, value in desired.tags.items()]


def served_name(desired: DesiredEndpoint, version: str) -> str:
    """The served entity's name: `MODEL-VERSION`, without catalog and schema."""
    model = re.sub(r"[^A-Za-z0-9_-]", "_", desired.entity_name.rsplit(".", 1)[-1]).lstrip("_-")
    return (model or "model")[: 62 - len(version)] + f"-{version}"


def _entity(desired: DesiredEndpoint, version: str) -> ServedEntityInput:
    provisioned = desired.max_provisioned_concurrency is not None
    return ServedEntityInput(
        name=served_name(desired, version),
        entity_name=desired.entity_name,
        entity_version=version,
        workload_type=desired.workload_type,
        workload_size=None if provisioned else desired.workload_size,
        min_provisioned_concurrency=desired.min_provisioned_concurrency,
        max_provisioned_concurrency=desired.max_provisioned_concurrency,
        scale_to_zero_enabled=desired.scale_to_zero,
        environment_vars=desired.environment or None,
        instance_profile_arn=desired.instance_profile_arn,
    )


def _inference_table(
    table: InferenceTable | Literal["off"] | None,
) -> AiGatewayInferenceTableConfig | None:
    if table is None:
        return None
    if table == "off":
        return AiGatewayInferenceTableConfig(enabled=False)
    return AiGatewayInferenceTableConfig(
        enabled=True,
        catalog_name=table.catalog,
        schema_name=table.schema_name,
        table_name_prefix=table.prefix,
    )


def _rate_limit(limit: RateLimit) -> AiGatewayRateLimit:
    period = AiGatewayRateLimitRenewalPeriod.MINUTE
    return AiGatewayRateLimit(calls=limit.calls, key=limit.per, renewal_period=period)
