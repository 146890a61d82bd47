"""DataFrame and params -> RequestRows, lazily and in order; a bad row is a RowError in its place."""

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
_CONSTRAINT_SETTINGS = ("constraint_backend", "whitespace", "force_order")
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

    def __init__(self, records: Collection[Record], call: CallSettings) -> None:
        self._records = records
        self.call = call

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RequestRow | RowError]:
        return (_row(index, record, self.call) for index, record in enumerate(self._records))


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
        return CallSettings(fields, given, read_constraint(given, fields))
    except RowError as error:
        raise RequestError(f"params: {error.message}") from None


def _param(value: Any) -> Any:
    """Plain, but for NaN: missing in a column, it is a wrong number in a param."""
    return value if isinstance(value, float) else plain(value)


def parse_rows(model_input: Any, params: Mapping[str, Any] | None = None) -> Rows:
    """The rows of a call, in order, one item a row.

    Raises RequestError at once for wrong params or a payload whose rows cannot be told apart.
    """
    return Rows(read_records(model_input), read_params(params))


def _row(index: int, record: Record, call: CallSettings) -> RequestRow | RowError:
    try:
        return _checked_row(index, record, call)
    except RowError as error:
        return error
    except RequestError as error:
        return RowError(error.message, error.code)


def _checked_row(index: int, record: Record, call: CallSettings) -> RequestRow:
    if unknown := [name for name in record if name not in COLUMNS and record[name] is not None]:
        raise RowError(f"unknown columns: {', '.join(unknown)}", "INVALID_PARAMETER_VALUE")
    values = {name: _cell(name, cell) for name, cell in record.items()}
    own = _settings(values)
    fields = check_fields(own, call.fields) if own else call.fields
    messages = read_conversation(
        _prompt(record, values),
        values.get("messages"),
        fields.system_prompt,
        own_system="system_prompt" in own,
    )
    return RequestRow(index, messages, fields, _constraint(values, fields, call))


def _constraint(values: Record, fields: RequestFields, call: CallSettings) -> ConstraintSpec | None:
    """The row's own constraint, or else the call's, under the row's own settings."""
    given = given_constraints(values)
    if not given and all(getattr(fields, s) == getattr(call.fields, s) for s in _CONSTRAINT_SETTINGS):
        return call.constraint
    return read_constraint(given or call.given, fields)


def _cell(name: str, cell: Any) -> Any:
    """MLflow turns null into the text "None" in text columns."""
    return None if cell == "None" or (cell == "null" and name not in CONTENT_FIELDS) else cell


def _prompt(record: Record, values: Record) -> Any:
    """A prompt may really read "None": it is only taken for null beside messages."""
    return values.get("prompt") if values.get("messages") is not None else record.get("prompt")


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not content or a constraint, and that carry something."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and name not in CONTENT_FIELDS and name not in CONSTRAINT_FIELDS
    }
