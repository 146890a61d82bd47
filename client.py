"""A typed client: rows in, answers out as the caller's own type.

    client = Client("my-endpoint")
    for answer in client.answer(documents, schema=Grade, system_prompt="Grade the document."):
        print(answer.value or answer.error)

Over mlflow.deployments, so it works against Databricks and against the local endpoint. MLflow
drops params and columns that a model does not know; this client refuses them before sending.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Any,
    Generic,
    NotRequired,
    Required,
    TypeVar,
    get_type_hints,
    is_typeddict,
    overload,
)

import typing_extensions
from mlflow.deployments import get_deploy_client
from mlflow.deployments.base import BaseDeploymentClient
from pydantic import TypeAdapter, ValidationError

from model.errors import RequestError
from signature import INPUT_COLUMNS, PARAM_DEFAULTS

T = TypeVar("T")
Row = str | Mapping[str, Any]
_TEXT_PARAMS = frozenset({"stop", "choice", "response_format", "json_schema"})


@dataclass(frozen=True)
class Answer(Generic[T]):
    """One row's answer. `value` is the parsed output, and None when `error` says why not.

    `record` is everything the endpoint sent for the row: usage, finish_reason, reasoning, ...
    """

    value: T | None
    error: str | None
    record: Mapping[str, Any]

    @property
    def output(self) -> str | None:
        """The answer's text, also of one that was cut or is not valid."""
        text: str | None = self.record.get("output")
        return text


class Client:
    """Asks one endpoint. `deploy_client` is an mlflow.deployments client, or a target for one."""

    def __init__(
        self, endpoint: str, deploy_client: BaseDeploymentClient | str = "databricks"
    ) -> None:
        self._endpoint = endpoint
        self._client = (
            get_deploy_client(deploy_client) if isinstance(deploy_client, str) else deploy_client
        )

    @overload
    def answer(self, rows: Iterable[Row], *, schema: type[T], **params: Any) -> list[Answer[T]]: ...

    @overload
    def answer(
        self, rows: Iterable[Row], *, schema: Mapping[str, Any] | str | None = None, **params: Any
    ) -> list[Answer[Any]]: ...

    def answer(
        self, rows: Iterable[Row], *, schema: Any = None, **params: Any
    ) -> list[Answer[Any]]:
        """One Answer a row, in order.

        `schema` is a pydantic model, a dataclass, a TypedDict or another type, whose values the
        answers become; or a JSON schema as a dict or text, whose answers are parsed JSON; or None
        for text. A row is a prompt, or a record of input columns; `params` hold for all rows.
        Raises RequestError for names that the model does not know.
        """
        parser = _Parser(schema)
        records = [_record(row) for row in rows]
        given = {name: _param(name, value) for name, value in params.items() if value is not None}
        if parser.json_schema is not None:
            given["json_schema"] = parser.json_schema
        _refuse_unknown("param", given, PARAM_DEFAULTS)
        if not records:
            return []
        reply = self._client.predict(
            endpoint=self._endpoint, inputs={"inputs": records, "params": given}
        )
        return [parser.answer(record) for record in read_reply(reply, len(records))]


def read_reply(reply: Any, count: int) -> list[dict[str, Any]]:
    """A reply's records, under "predictions" or bare. RequestError unless there are `count`."""
    predictions = reply.get("predictions") if isinstance(reply, Mapping) else reply
    predictions = getattr(predictions, "predictions", predictions)
    if not isinstance(predictions, Sequence) or len(predictions) != count:
        raise RequestError(
            f"the endpoint did not answer each of {count} rows; is it a Formline model?"
        )
    return [dict(prediction) for prediction in predictions]


class _Parser:
    """The schema to send, and how an answer under it becomes a value."""

    def __init__(self, schema: Any) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        self.json_schema: str | None = None
        if isinstance(schema, str):
            self.json_schema = schema
        elif isinstance(schema, Mapping):
            self.json_schema = json.dumps(schema, ensure_ascii=False)
        elif schema is not None:
            self._adapter = TypeAdapter(_readable(schema))
            self.json_schema = json.dumps(closed(self._adapter.json_schema()), ensure_ascii=False)

    def answer(self, record: dict[str, Any]) -> Answer[Any]:
        error = record.get("error")
        if error is not None:
            return Answer(None, error, record)
        try:
            return Answer(self._value(record["output"]), None, record)
        except (ValidationError, ValueError) as fault:
            return Answer(None, f"INVALID_OUTPUT: {fault}", record)

    def _value(self, output: str) -> Any:
        if self._adapter is not None:
            return self._adapter.validate_json(output)
        return output if self.json_schema is None else json.loads(output)


def _readable(schema: Any) -> Any:
    """The type, or for a TypedDict of `typing` one that pydantic reads before Python 3.12 too."""
    if not is_typeddict(schema):
        return schema
    hints = {
        name: Required[hint] if name in schema.__required_keys__ else NotRequired[hint]
        for name, hint in get_type_hints(schema, include_extras=True).items()
    }
    typed_dict: Any = typing_extensions.TypedDict
    return typed_dict(schema.__name__, hints)


def closed(schema: Any) -> Any:
    """The JSON schema of a type with its objects closed: a type's fields are all its fields."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        inner.setdefault("additionalProperties", False)
    return inner


def _record(row: Row) -> dict[str, Any]:
    record = {"prompt": row} if isinstance(row, str) else dict(row)
    _refuse_unknown("column", record, INPUT_COLUMNS)
    return record


def _param(name: str, value: Any) -> Any:
    """MLflow's params are scalars: lists and objects travel as JSON text."""
    if name in _TEXT_PARAMS and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value


def _refuse_unknown(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name.lower(), names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"
            raise RequestError(f"the model has no {kind} {name!r}{hint}")
