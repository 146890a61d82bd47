"""What an endpoint should be. Everything Databricks would refuse later is refused here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from databricks.sdk.service.serving import AiGatewayRateLimitKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from deploying.hardware import WorkloadSize, WorkloadType
from model.errors import ConfigError

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")
VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
SECRET = re.compile(r"^\{\{secrets/[^/{}]+/[^/{}]+\}\}$")
MAX_VARIABLES = 30
MAX_TAGS = 20


class InferenceTable(BaseModel):
    """Where AI Gateway logs requests and answers: catalog, schema, and a prefix for the table."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    catalog: str
    schema_name: str
    prefix: str | None = None


class RateLimit(BaseModel):
    """Calls a minute, for the endpoint or for each user."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    calls: Annotated[int, Field(ge=1)]
    per: AiGatewayRateLimitKey = AiGatewayRateLimitKey.ENDPOINT


class DesiredEndpoint(BaseModel):
    """An endpoint over one registered model. `traffic` is version -> percent, adding up to 100.

    None leaves an AI Gateway setting as it is; "off", () and False end it. Raises ConfigError,
    from `check`, naming each field that is wrong and what to write.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    entity_name: str
    traffic: dict[str, Annotated[int, Field(ge=0, le=100)]]
    workload_type: WorkloadType = WorkloadType.GPU_MEDIUM
    workload_size: WorkloadSize | None = "Small"
    min_provisioned_concurrency: Annotated[int, Field(ge=0)] | None = None
    max_provisioned_concurrency: Annotated[int, Field(ge=1)] | None = None
    scale_to_zero: bool = True
    environment: dict[str, str] = {}
    tags: dict[str, str] = {}
    instance_profile_arn: str | None = None
    inference_table: InferenceTable | Literal["off"] | None = None
    rate_limits: tuple[RateLimit, ...] | None = None
    usage_tracking: bool | None = None
    route_optimized: bool = False
    description: str | None = None

    @classmethod
    def check(cls, **fields: Any) -> DesiredEndpoint:
        """Build one, with every fault in one ConfigError."""
        try:
            return cls(**fields)
        except ValidationError as error:
            faults = [f"{_where(e['loc'])}{_said(e['msg'])}" for e in error.errors()]
            raise ConfigError("; ".join(faults)) from None

    @field_validator("name")
    @classmethod
    def well_named(cls, name: str) -> str:
        if not NAME.match(name):
            raise ValueError(
                "use 1 to 63 letters, digits, - and _, starting with a letter or digit"
            )
        return name

    @field_validator("environment")
    @classmethod
    def few_good_variables(cls, environment: Mapping[str, str]) -> Mapping[str, str]:
        if len(environment) > MAX_VARIABLES:
            raise ValueError(f"at most {MAX_VARIABLES} variables, got {len(environment)}")
        for name, value in environment.items():
            if not VARIABLE.match(name):
                raise ValueError(
                    f"{name!r} is no name of a variable: use letters, digits and _, no digit first"
                )
            if "{{" in value and not SECRET.match(value):
                raise ValueError(f"{name}: write a secret as {{{{secrets/SCOPE/KEY}}}}")
        return environment

    @field_validator("tags")
    @classmethod
    def few_tags(cls, tags: Mapping[str, str]) -> Mapping[str, str]:
        if len(tags) >= MAX_TAGS:
            raise ValueError(f"at most {MAX_TAGS - 1} tags beside the one that keeps the history")
        return tags

    @model_validator(mode="after")
    def adds_up(self) -> DesiredEndpoint:
        if sum(self.traffic.values()) != 100:
            raise ValueError(
                f"traffic must add up to 100 percent, got {sum(self.traffic.values())}"
            )
        low, high = self.min_provisioned_concurrency, self.max_provisioned_concurrency
        if (low is None) != (high is None):
            raise ValueError("give both min_ and max_provisioned_concurrency, or neither")
        if low is not None and high is not None and (low > high or low % 4 or high % 4):
            raise ValueError("provisioned concurrency: multiples of 4, min not above max")
        return self

    @property
    def main_version(self) -> str:
        """The version with the largest share."""
        return max(self.traffic, key=self.traffic.__getitem__)


def _where(loc: tuple[str | int, ...]) -> str:
    return ".".join(map(str, loc)) + ": " if loc else ""


def _said(message: str) -> str:
    return message.removeprefix("Value error, ")
