"""The constraint of a row, from whichever field carries it, as one ConstraintSpec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.cells import kind, read_json, to_json
from model.constraints.spec import ConstraintSpec, Kind
from model.errors import RowError
from model.fields import CONSTRAINT_FIELDS, RequestFields

MAX_SCHEMA_CHARACTERS = 1_000_000
MAX_CHOICES = 10_000


class _JsonSchema(BaseModel):
    """`json_schema` inside OpenAI's `response_format`."""

    model_config = ConfigDict(strict=True, extra="forbid", populate_by_name=True)
    schema_: dict[str, Any] | bool = Field(alias="schema")
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class _ResponseFormat(BaseModel):
    """OpenAI's `response_format`."""

    model_config = ConfigDict(strict=True, extra="forbid")
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None


def given_constraints(values: Mapping[str, Any]) -> dict[str, Any]:
    """The constraint fields among `values` that carry something."""
    return {name: values[name] for name in CONSTRAINT_FIELDS if values.get(name) is not None}


def read_constraint(given: Mapping[str, Any], fields: RequestFields) -> ConstraintSpec | None:
    """The one constraint `given` asks for; None for free text. RowError when there are two."""
    if len(given) > 1:
        raise RowError(
            f"only one constraint can hold for a row, got {' and '.join(given)}",
            "CONFLICTING_CONSTRAINTS",
        )
    for name, value in given.items():
        return _READERS[name](value, fields)
    return None


def _spec(kind_: Kind, text: str, fields: RequestFields, ordered: bool = False) -> ConstraintSpec:
    if len(text) > MAX_SCHEMA_CHARACTERS:
        raise RowError(
            f"the constraint is {len(text)} characters long, {MAX_SCHEMA_CHARACTERS} are allowed",
            "INVALID_CONSTRAINT",
        )
    return ConstraintSpec(
        kind=kind_,
        text=text,
        backend=fields.constraint_backend,
        whitespace=fields.whitespace,
        force_order=fields.force_order or ordered,
        extra_properties=fields.extra_properties,
    )


def _from_json_schema(value: Any, fields: RequestFields) -> ConstraintSpec:
    json_schema = read_json(value, "json_schema") if isinstance(value, str) else value
    if not isinstance(json_schema, (dict, bool)):
        raise RowError(
            f"json_schema must be a JSON object, or its text, got {kind(json_schema)}",
            "INVALID_CONSTRAINT",
        )
    return _spec("json", to_json(json_schema, "json_schema"), fields)


def _from_response_format(value: Any, fields: RequestFields) -> ConstraintSpec | None:
    wanted = _response_format(value)
    if wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return _spec("json_object", "", fields)
    if wanted.json_schema is None:
        raise RowError(
            'response_format of type "json_schema" needs a "json_schema" with a "schema"',
            "INVALID_CONSTRAINT",
        )
    text = to_json(wanted.json_schema.schema_, "response_format")
    return _spec("json", text, fields, ordered=bool(wanted.json_schema.strict))


def _response_format(value: Any) -> _ResponseFormat:
    loaded = read_json(value, "response_format") if isinstance(value, str) else value
    try:
        return _ResponseFormat.model_validate(loaded)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(str(step) for step in first["loc"])
        raise RowError(
            f"response_format is not OpenAI's: {first['msg']} (at /{where})", "INVALID_CONSTRAINT"
        ) from None


def _from_choice(value: Any, fields: RequestFields) -> ConstraintSpec:
    choices = read_json(value, "choice") if isinstance(value, str) else value
    fine = (
        isinstance(choices, list)
        and 1 <= len(choices) <= MAX_CHOICES
        and all(isinstance(item, str) and item for item in choices)
    )
    if not fine:
        raise RowError(
            f"choice must be a JSON list of 1 to {MAX_CHOICES} texts, none of them empty, "
            f"got {kind(choices)}",
            "INVALID_CONSTRAINT",
        )
    return _spec("choice", to_json(list(dict.fromkeys(choices)), "choice"), fields)


def _from_regex(value: Any, fields: RequestFields) -> ConstraintSpec:
    return _spec("regex", _text(value, "regex"), fields)


def _from_grammar(value: Any, fields: RequestFields) -> ConstraintSpec:
    return _spec("grammar", _text(value, "grammar"), fields)


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise RowError(f"{field} must be text, not empty, got {kind(value)}", "INVALID_CONSTRAINT")
    return value


_READERS = {
    "json_schema": _from_json_schema,
    "response_format": _from_response_format,
    "regex": _from_regex,
    "choice": _from_choice,
    "grammar": _from_grammar,
}
