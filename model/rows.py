"""DataFrame and params -> RequestRows, lazily, in order; a bad row is a RowError in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from model.cells import plain
from model.constraint_fields import given_constraints, read_constraint
from model.constraints.spec import ConstraintSpec
from model.errors import RequestError, RowError
from model.fields import CONSTRAINT_FIELDS, RequestFields, check_fields
from model.frames import Record, read_records
from model.messages import Message, read_conversation

CONTENT_FIELDS = ("prompt", "messages")
_CONSTRAINT_SETTINGS = ("constraint_backend", "whitespace", "force_order", "extra_properties")
PARAMS = (*CONSTRAINT_FIELDS, *RequestFields.model_fields)
COLUMNS = (*CONTENT_FIELDS, *(name for name in PARAMS if name != "fail_on_row_error"))


@dataclass(frozen=True)
class RequestRow:
    """One row, checked: its conversation, its settings and its constraint.

    `index` is the row's position in the call, from 0. `constraint` None means free text.
    """

    index: int
    messages: tuple[Message, ...]
    fields: RequestFields
    constraint: ConstraintSpec | None


@dataclass(frozen=True)
class CallSettings:
    """What a call's params set for all its rows; `given` is the constraint as it was given."""

    fields: RequestFields
    given: Mapping[str, Any]
    constraint: ConstraintSpec | None


class Rows:
    """The rows of a call, parsed as they are iterated; `len` is their number."""

    def __init__(
        self, records: Collection[Record], call: CallSettings, *, text_columns: bool = False
    ) -> None:
        self._records = records
        self._text_columns = text_columns
        self.call = call

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RequestRow | RowError]:
        return (self._row(index, record) for index, record in enumerate(self._records))

    def _row(self, index: int, record: Record) -> RequestRow | RowError:
        try:
            return _checked_row(index, _without_null_texts(record, self._text_columns), self.call)
        except RowError as error:
            return error
        except RequestError as error:
            return RowError(error.message, error.code)


def read_params(params: Mapping[str, Any] | None) -> CallSettings:
    """The params of a call, checked; None values mean "not given".

    Raises RequestError: a wrong param is wrong for every row, so the call fails.
    """
    values = {name: _param(value) for name, value in (params or {}).items()}
    if unknown := [name for name in values if name not in PARAMS]:
        raise RequestError(f"unknown params: {', '.join(map(str, unknown))}")
    try:
        fields = check_fields(_settings(values))
        given = given_constraints(values)
        return CallSettings(fields, given, _agreeing(fields, read_constraint(given, fields)))
    except RowError as error:
        raise RequestError(f"params: {error.message}") from None


def _param(value: Any) -> Any:
    """Plain, but for NaN: missing in a column, it is a wrong number in a param."""
    return value if isinstance(value, float) else plain(value)


def parse_rows(
    model_input: Any, params: Mapping[str, Any] | None = None, *, text_columns: bool = False
) -> Rows:
    """The rows of a call, in order, one item a row.

    `text_columns` says that the version's columns are strings, in which null may arrive as "None".
    Raises RequestError at once for wrong params or a payload whose rows cannot be told apart.
    """
    return Rows(read_records(model_input), read_params(params), text_columns=text_columns)


def _checked_row(index: int, record: Record, call: CallSettings) -> RequestRow:
    if unknown := [name for name in record if name not in COLUMNS and record[name] is not None]:
        raise RowError(f"unknown columns: {', '.join(unknown)}", "INVALID_PARAMETER_VALUE")
    own = _settings(record)
    fields = check_fields(own, call.fields) if own else call.fields
    messages = read_conversation(
        record.get("prompt"),
        record.get("messages"),
        fields.system_prompt,
        own_system="system_prompt" in own,
    )
    constraint = _agreeing(fields, _constraint(record, fields, call))
    return RequestRow(index, messages, fields, constraint)


def _constraint(record: Record, fields: RequestFields, call: CallSettings) -> ConstraintSpec | None:
    """The row's own constraint, or else the call's, under the row's own settings."""
    given = given_constraints(record)
    if not given and all(
        getattr(fields, s) == getattr(call.fields, s) for s in _CONSTRAINT_SETTINGS
    ):
        return call.constraint
    return read_constraint(given or call.given, fields)


def _agreeing(fields: RequestFields, constraint: ConstraintSpec | None) -> ConstraintSpec | None:
    """The constraint, unless a setting forbids the end that it may force."""
    if constraint is not None and (fields.ignore_eos or fields.min_tokens > 1):
        name = "ignore_eos" if fields.ignore_eos else "min_tokens above 1"
        raise RowError(
            f"{name} cannot hold under a constraint, which ends an answer when it is complete",
            "INVALID_PARAMETER_VALUE",
        )
    return constraint


def _without_null_texts(record: Record, text_columns: bool) -> Record:
    """The record with "None", which MLflow makes of null in text columns, as None again.

    In other columns a prompt may really read "None", and is kept.
    """
    return {
        name: None if cell == "None" and (text_columns or name != "prompt") else cell
        for name, cell in record.items()
    }


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not content or a constraint, and that carry something."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and name not in CONTENT_FIELDS and name not in CONSTRAINT_FIELDS
    }
