"""What a caller may send: the Databricks serving API, as a custom model's endpoint uses it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

ENDPOINT_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"
EndpointName = Annotated[str, StringConstraints(pattern=ENDPOINT_NAME)]
ServedEntityName = Annotated[str, StringConstraints(pattern=ENDPOINT_NAME)]
WorkloadType = Literal[
    "CPU",
    "CPU_MEDIUM",
    "CPU_LARGE",
    "GPU_SMALL",
    "GPU_MEDIUM",
    "GPU_LARGE",
    "GPU_XLARGE",
    "GPU_XLARGE_8",
    "MULTIGPU_MEDIUM",
]
CONCURRENCY_BY_SIZE = {"Small": 4, "Medium": 16, "Large": 64}
MAX_ENVIRONMENT_VARS = 30


class Strict(BaseModel):
    """What a caller sends: an unknown field is a mistake, not a wish."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), coerce_numbers_to_str=True)


class Tag(Strict):
    key: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    value: Annotated[str, StringConstraints(max_length=256)] | None = None


class RateLimit(Strict):
    """At most `calls` requests (or `tokens`) a minute, for the endpoint or for each user."""

    renewal_period: Literal["minute"]
    calls: Annotated[int, Field(ge=0)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    key: Literal["endpoint", "user", "user_group", "service_principal"] = "endpoint"
    principal: str | None = None


class Toggle(BaseModel):
    model_config = ConfigDict(extra="allow")
    enabled: bool = False


class InferenceTable(Strict):
    enabled: bool = False
    catalog_name: str | None = None
    schema_name: str | None = None
    table_name_prefix: str | None = None


class AiGateway(Strict):
    """Kept and returned; of it, the local endpoint enforces the rate limits."""

    usage_tracking_config: Toggle | None = None
    inference_table_config: InferenceTable | None = None
    rate_limits: list[RateLimit] | None = None
    fallback_config: Toggle | None = None
    guardrails: dict[str, Any] | None = None


class ServedEntityInput(Strict):
    """A registered version and the compute it asks for."""

    entity_name: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    entity_version: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")]
    name: ServedEntityName | None = None
    workload_type: WorkloadType | None = None
    workload_size: Literal["Small", "Medium", "Large"] | None = None
    min_provisioned_concurrency: Annotated[int, Field(ge=0, le=1024)] | None = None
    max_provisioned_concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    scale_to_zero_enabled: bool = False
    burst_scaling_enabled: bool | None = None
    environment_vars: dict[str, str] | None = Field(default=None, max_length=MAX_ENVIRONMENT_VARS)
    instance_profile_arn: str | None = None

    @property
    def concurrency(self) -> int:
        """Requests served at once: what was provisioned, or what the size stands for."""
        by_size = CONCURRENCY_BY_SIZE[self.workload_size or "Small"]
        return self.max_provisioned_concurrency or by_size

    @property
    def launches_like(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """What decides whether a running process can serve this entity too."""
        return (
            self.entity_name,
            self.entity_version,
            tuple(sorted((self.environment_vars or {}).items())),
        )


class ServedModelInput(Strict):
    """The older spelling of a served entity."""

    model_name: str
    model_version: str
    name: ServedEntityName | None = None
    workload_type: WorkloadType | None = None
    workload_size: Literal["Small", "Medium", "Large"] | None = None
    min_provisioned_concurrency: int | None = None
    max_provisioned_concurrency: int | None = None
    scale_to_zero_enabled: bool = False
    burst_scaling_enabled: bool | None = None
    environment_vars: dict[str, str] | None = None
    instance_profile_arn: str | None = None

    def as_entity(self) -> dict[str, Any]:
        """The same thing in today's words."""
        fields = self.model_dump(exclude_none=True)
        fields["entity_name"] = fields.pop("model_name")
        fields["entity_version"] = fields.pop("model_version")
        return fields


class Route(Strict):
    """A share of the traffic, in percent, for one served entity."""

    served_entity_name: str | None = None
    served_model_name: str | None = None
    traffic_percentage: Annotated[int, Field(ge=0, le=100)]

    @property
    def target(self) -> str:
        """The served entity's name, under whichever spelling it came."""
        return self.served_entity_name or self.served_model_name or ""


class TrafficConfig(Strict):
    routes: list[Route] | None = None


class EndpointConfig(Strict):
    """What an endpoint serves and how its traffic is split."""

    name: EndpointName | None = None
    served_entities: list[ServedEntityInput] = Field(default_factory=list, max_length=15)
    traffic_config: TrafficConfig | None = None
    auto_capture_config: InferenceTable | None = None

    @model_validator(mode="before")
    @classmethod
    def read_served_models(cls, data: Any) -> Any:
        """Accept `served_models` in place of `served_entities`."""
        if not isinstance(data, dict) or not data.get("served_models"):
            return data
        if data.get("served_entities"):
            raise ValueError("give served_entities or served_models, not both")
        models = [ServedModelInput.model_validate(m).as_entity() for m in data["served_models"]]
        rest = {k: v for k, v in data.items() if k != "served_models"}
        return {**rest, "served_entities": models}

    @model_validator(mode="after")
    def name_and_route(self) -> EndpointConfig:
        """Give every entity its name and every name its share."""
        self.served_entities = [_named(entity) for entity in self.served_entities]
        names = [entity.name for entity in self.served_entities]
        if len(set(names)) != len(names):
            raise ValueError("served entity names must differ; set `name` on each")
        if self.served_entities:
            self.traffic_config = TrafficConfig(routes=_routes(self.traffic_config, names))
        return self


def _named(entity: ServedEntityInput) -> ServedEntityInput:
    if entity.name:
        return entity
    model = re.sub(r"[^A-Za-z0-9_-]", "_", entity.entity_name.rsplit(".", 1)[-1]).lstrip("_-")
    version = f"-{entity.entity_version}"
    return entity.model_copy(update={"name": (model or "model")[: 63 - len(version)] + version})


def _routes(traffic: TrafficConfig | None, names: list[str | None]) -> list[Route]:
    routes = (traffic and traffic.routes) or []
    if not routes and len(names) == 1:
        return [
            Route(served_entity_name=names[0], served_model_name=names[0], traffic_percentage=100)
        ]
    unknown = [route.target for route in routes if route.target not in names]
    if unknown:
        raise ValueError(f"traffic_config names no served entity: {unknown}; there are {names}")
    if sum(route.traffic_percentage for route in routes) != 100:
        raise ValueError("the traffic percentages of traffic_config.routes must add up to 100")
    return routes


class EndpointCreate(Strict):
    """The body of `POST /api/2.0/serving-endpoints`."""

    name: EndpointName
    config: EndpointConfig
    tags: list[Tag] | None = Field(default=None, max_length=20)
    rate_limits: list[RateLimit] | None = None
    ai_gateway: AiGateway | None = None
    route_optimized: bool | None = None
    description: str | None = None
    email_notifications: dict[str, Any] | None = None
    budget_policy_id: str | None = None
    telemetry_config: dict[str, Any] | None = None


class TagsPatch(Strict):
    add_tags: list[Tag] | None = None
    delete_tags: list[str] | None = None


class RateLimitsPut(Strict):
    rate_limits: list[RateLimit] | None = None


class NotificationsPatch(Strict):
    email_notifications: dict[str, Any] | None = None


class TelemetryPatch(Strict):
    telemetry_config: dict[str, Any] | None = None
