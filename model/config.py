"""How one registered model behaves: MLflow's `model_config`, checked.

Everything here is chosen at registration, logged with the version, and may be overridden when it
is loaded (`mlflow.pyfunc.load_model(uri, model_config={...})`). MLflow drops keys that were not
logged, so `to_mlflow` always writes all of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationError,
    field_validator,
)

from model.errors import ConfigError

Preset = Literal["model", "llama-3", "chatml", "mistral", "gemma", "phi-4"]

RESERVED_ENGINE_ARGS = frozenset({"model", "model_weights", "served_model_name"})

# What belongs to the engine itself; the other settings are given with each call.
ENGINE_SETTINGS = {"window_rows", "rebuild_attempts", "hang_timeout_s"}

DEFAULT_ENGINE_ARGS: dict[str, JsonValue] = {
    "enable_prefix_caching": True,
    "structured_outputs_config": {"backend": "lm-format-enforcer"},
}


class Frozen(BaseModel):
    """A value object: no unknown fields, no changes after it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RoleTemplates(Frozen):
    """One template a role, each with one `{}` where the content goes.

    A prompt is `pre_prompt`, each message through its role's template, then `post_prompt`, which
    opens the assistant's turn. Without a "system" role the system prompt joins the first user turn.
    """

    roles: dict[str, str]
    pre_prompt: str = ""
    post_prompt: str = ""

    @field_validator("roles")
    @classmethod
    def one_slot_each(cls, roles: dict[str, str]) -> dict[str, str]:
        if "user" not in roles:
            raise ValueError("needs a template for the role 'user'")
        for role, template in roles.items():
            if template.count("{}") != 1:
                raise ValueError(
                    f"the template of role {role!r} needs exactly one {{}}: {template!r}"
                )
        return roles


class JinjaTemplate(Frozen):
    """A chat template in Jinja, as `tokenizer_config.json` would hold it."""

    jinja: str


ChatTemplateSpec = Preset | RoleTemplates | JinjaTemplate


def _template_kind(value: Any) -> str:
    """Which of the three a value means, so that an error speaks of that one only."""
    if isinstance(value, str):
        return "preset"
    if isinstance(value, JinjaTemplate) or (isinstance(value, Mapping) and "jinja" in value):
        return "jinja"
    return "roles"


_ChatTemplate = Annotated[
    Annotated[Preset, Tag("preset")]
    | Annotated[RoleTemplates, Tag("roles")]
    | Annotated[JinjaTemplate, Tag("jinja")],
    Discriminator(_template_kind),
]


class ModelConfig(Frozen):
    """All settings of a registered model. Times are in seconds.

    Raises ConfigError from its classmethods when a key or a value is wrong.
    """

    engine_args: dict[str, JsonValue] = Field(
        default={},
        description="vLLM engine arguments by vLLM's own names; `engine_kwargs()` "
        "adds Formline's defaults",
    )
    chat_template: _ChatTemplate = Field(
        default="model", description='"model" is the template that came with the tokenizer'
    )
    deadline_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="limit of a call made in this process (None: no limit)"
    )
    served_deadline_s: Annotated[float, Field(gt=0)] | None = Field(
        default=50.0, description="limit of a call over HTTP; the scoring server gives up at 60"
    )
    window_rows: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="rows of all calls inside the engine at once "
        "(None: as many as it computes at once, and a few that wait for the next place)",
    )
    max_waiting_rows: Annotated[int, Field(ge=1)] = Field(
        default=4096, description="rows of all calls over HTTP, beyond which new calls get 429"
    )
    rebuild_attempts: Annotated[int, Field(ge=0)] = Field(
        default=3, description="rebuilds of a dead engine before it is reported unhealthy for good"
    )
    hang_timeout_s: Annotated[float, Field(gt=0)] | None = Field(
        default=30.0,
        description="after which a stopped engine process, or one that has not answered for so "
        "long beyond vLLM's own limit of a step, is killed and rebuilt (None: never)",
    )
    refusal_marks: list[str] = Field(
        default=[], description="texts or control tokens with which the model says it refuses"
    )
    string_columns: bool = Field(
        default=False, description="the signature's columns are strings, where null reads None"
    )
    log_prompts: bool = Field(
        default=False, description="write prompts and answers to the log; off keeps them private"
    )

    @classmethod
    def from_mlflow(cls, model_config: Mapping[str, Any] | None) -> ModelConfig:
        """Reads MLflow's `model_config`; ConfigError names the key that is wrong."""
        try:
            return cls.model_validate(dict(model_config or {}))
        except ValidationError as error:
            raise ConfigError(f"model_config: {_first_problem(error, cls.model_fields)}") from error

    def to_mlflow(self) -> dict[str, Any]:
        """All keys, as plain JSON values."""
        return self.model_dump(mode="json")

    def engine_kwargs(self) -> dict[str, JsonValue]:
        """Keyword arguments for vLLM's AsyncEngineArgs, beside `model`; the caller's own win."""
        return DEFAULT_ENGINE_ARGS | self.engine_args

    def engine_key(self) -> str:
        """Equal for configs that can share one engine."""
        settings = self.model_dump(mode="json", include=ENGINE_SETTINGS)
        return json.dumps(settings | {"engine_args": self.engine_kwargs()}, sort_keys=True)


def check_engine_args(names: Iterable[str]) -> None:
    """ConfigError when a name is not a vLLM engine argument. Builds no engine, but imports vLLM."""
    for name in names:
        if name in RESERVED_ENGINE_ARGS:
            raise ConfigError(f"engine_args: {name!r} is set by Formline from the weights given")
        if name not in engine_arg_names():
            raise ConfigError(
                f"engine_args: vLLM has no engine argument {name!r}{_suggestion(name)}"
            )


@cache
def engine_arg_names() -> frozenset[str]:
    """Names of all engine arguments of the vLLM that is installed."""
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs
    except ImportError as error:
        raise ConfigError(
            "engine_args can only be checked where vLLM is installed; install the runtime's "
            "requirements file first"
        ) from error
    names = (field.name for field in dataclasses.fields(AsyncEngineArgs))
    return frozenset(name for name in names if not name.startswith("_"))


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, engine_arg_names(), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _first_problem(error: ValidationError, fields: Iterable[str]) -> str:
    problem = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}; the keys are {', '.join(fields)}"
    return f"{key}: {problem['msg']}"
