"""Every setting a call's params or a row's columns may carry, with default and allowed range.

One pydantic model holds them all; signature.py turns it into MLflow's params and columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from model.cells import kind, read_json, whole
from model.constraints.spec import Backend, Whitespace
from model.errors import RowError

DEFAULT_SYSTEM_PROMPT = "You are a helpful assistant."
MAX_STOPS = 16
MAX_STOP_LENGTH = 256
CONSTRAINT_FIELDS = ("json_schema", "response_format", "regex", "choice", "grammar")


def _number(value: Any) -> Any:
    """JSON text of a number or a boolean as its value: CSV and text columns send nothing else."""
    if isinstance(value, str):
        try:
            value = read_json(value, "the text")
        except RowError:
            return value  # refused as text, in the words for its field
    return whole(value)


def _stops(value: Any) -> Any:
    """One stop text, a JSON list of them as text, or a list, as a tuple of texts."""
    if isinstance(value, str):
        value = _stop_list(value)
    return tuple(value) if isinstance(value, list) else value


def _stop_list(text: str) -> list[Any]:
    if text.startswith("[") and text.endswith("]"):
        try:
            listed = read_json(text, "stop")
        except RowError:
            return [text]  # a stop text such as "[/INST]"
        if all(isinstance(item, str) for item in listed):
            return list(listed)
    return [text]


def _backend(value: Any) -> Any:
    """LM Format Enforcer is the parser inside our own backend; its vLLM name means ours."""
    return "formline" if value == "lm-format-enforcer" else value


Whole = Annotated[int, BeforeValidator(_number)]
Real = Annotated[float, BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_number)]
StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]


class RequestFields(BaseModel):
    """The settings of one row, checked. Descriptions complete the sentence "NAME must be ..."."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    temperature: Real = Field(0.1, ge=0, le=2, description="a number from 0 to 2")
    max_tokens: Whole = Field(512, ge=1, le=1_048_576, description="an integer from 1 to 1048576")
    top_k: Whole = Field(
        50, ge=-1, le=1_000_000, description="an integer from -1 to 1000000 (-1 and 0: all tokens)"
    )
    top_p: Real = Field(0.8, gt=0, le=1, description="a number above 0, at most 1")
    min_p: Real = Field(0.0, ge=0, le=1, description="a number from 0 to 1")
    repetition_penalty: Real = Field(1.0, gt=0, le=10, description="a number above 0, at most 10")
    presence_penalty: Real = Field(0.0, ge=-2, le=2, description="a number from -2 to 2")
    frequency_penalty: Real = Field(0.0, ge=-2, le=2, description="a number from -2 to 2")
    min_tokens: Whole = Field(0, ge=0, le=1_048_576, description="an integer from 0 to 1048576")
    seed: Whole | None = Field(
        None, ge=0, le=2**63 - 1, description="an integer from 0 to 9223372036854775807"
    )
    n: Whole = Field(1, ge=1, le=64, description="an integer from 1 to 64")
    logprobs: Whole | None = Field(None, ge=0, le=20, description="an integer from 0 to 20")
    ignore_eos: Flag = Field(False, description="true or false")
    stop: Annotated[tuple[StopText, ...], BeforeValidator(_stops)] = Field(
        (),
        max_length=MAX_STOPS,
        description=f"a text or a JSON list of up to {MAX_STOPS} texts, "
        f"each of 1 to {MAX_STOP_LENGTH} characters",
    )
    system_prompt: str = Field(DEFAULT_SYSTEM_PROMPT, description="text")
    enable_thinking: Flag | None = Field(None, description="true or false")
    constraint_backend: Annotated[Backend, BeforeValidator(_backend)] = Field(
        "formline", description=f"one of {', '.join(get_args(Backend))}"
    )
    whitespace: Whitespace = Field(
        "flexible", description=f"one of {', '.join(get_args(Whitespace))}"
    )
    force_order: Flag = Field(False, description="true or false")
    extra_properties: Flag = Field(False, description="true or false")
    choice_probabilities: Flag = Field(False, description="true or false")
    max_retries: Whole = Field(0, ge=0, le=5, description="an integer from 0 to 5")
    fail_on_row_error: Flag = Field(False, description="true or false")


def check_fields(values: Mapping[str, Any], base: RequestFields | None = None) -> RequestFields:
    """Plain `values` over `base` (or the defaults), checked; None means "not given".

    Raises RowError naming each wrong field, the kind of its value and the allowed range.
    """
    given = {name: value for name, value in values.items() if value is not None}
    merged = {**(base.model_dump() if base else {}), **given}
    try:
        fields = RequestFields.model_validate(merged)
    except ValidationError as error:
        raise RowError(_explain(error, given), "INVALID_PARAMETER_VALUE") from None
    if fields.min_tokens > fields.max_tokens:
        raise RowError(
            f"min_tokens ({fields.min_tokens}) must be at most max_tokens ({fields.max_tokens})",
            "INVALID_PARAMETER_VALUE",
        )
    return fields


def _explain(error: ValidationError, given: Mapping[str, Any]) -> str:
    names = dict.fromkeys(str(detail["loc"][0]) for detail in error.errors())
    return "; ".join(_sentence(name, given.get(name)) for name in names)


def _sentence(name: str, value: Any) -> str:
    field = RequestFields.model_fields.get(name)
    if field is None:
        return f"{name} is not a known field; known: {', '.join(RequestFields.model_fields)}"
    return f"{name} must be {field.description}, got {kind(value)}"
