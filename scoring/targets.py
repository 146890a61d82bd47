"""What answers rows: the contract, and a registered model version behind it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import mlflow
import pandas as pd
import pyarrow as pa
from mlflow.exceptions import MlflowException
from mlflow.models.model import ModelInfo

from scoring.answers import ANSWER_SCHEMA, answers_from_frame
from scoring.errors import TargetError, UsageError


class Target(Protocol):
    """Answers rows; called from several threads at once.

    `answer` takes one record a row (object columns) and gives the answers in order; row errors are
    in the `error` column. It raises TargetError when nothing will be answered any more.
    """

    @property
    def request_columns(self) -> Sequence[str]: ...
    @property
    def answer_schema(self) -> pa.Schema: ...
    @property
    def chunks_at_once(self) -> int: ...
    def identity(self) -> dict[str, Any]: ...
    def start(self) -> None: ...
    def answer(self, requests: pd.DataFrame) -> pa.RecordBatch: ...
    def close(self) -> None: ...


class ModelTarget:
    """A model version loaded into this process. Two chunks at once keep its engine's batch full."""

    answer_schema = ANSWER_SCHEMA
    chunks_at_once = 2

    def __init__(self, uri: str, params: Mapping[str, Any]) -> None:
        self.uri, info = resolve(uri)
        self._model_uuid = info.model_uuid
        check_names("param", params, _param_names(info))
        self._params = dict(params)
        self.request_columns = _input_names(info)
        self._model: Any = None

    def identity(self) -> dict[str, Any]:
        return {"model": self.uri, "model_uuid": self._model_uuid}

    def start(self) -> None:
        """Loads the model: its engine starts here."""
        if self._model is None:
            try:
                self._model = mlflow.pyfunc.load_model(self.uri)
            except MlflowException as error:
                raise TargetError(f"{self.uri} does not load: {error.message}") from error

    def answer(self, requests: pd.DataFrame) -> pa.RecordBatch:
        try:
            frame = self._model.predict(requests, params=self._params)
        except MlflowException as error:
            wrong = error.error_code == "INVALID_PARAMETER_VALUE"  # for all rows alike
            raise (UsageError if wrong else TargetError)(f"{self.uri}: {error.message}") from error
        return answers_from_frame(frame, len(requests), self.answer_schema)

    def close(self) -> None:
        self._model = None


def resolve(uri: str) -> tuple[str, ModelInfo]:
    """The URI with its alias replaced by the version it means now, and what is known of it."""
    try:
        if uri.startswith("models:/") and "@" in uri:
            name, _, alias = uri.removeprefix("models:/").rpartition("@")
            version = mlflow.MlflowClient().get_model_version_by_alias(name, alias)
            uri = f"models:/{name}/{version.version}"
        return uri, mlflow.models.get_model_info(uri)
    except (MlflowException, OSError) as error:
        raise UsageError(f"model {uri}: {error}") from error


def _param_names(info: ModelInfo) -> list[str]:
    params = info.signature.params if info.signature else None
    return [spec.name for spec in params] if params else []


def _input_names(info: ModelInfo) -> list[str]:
    inputs = info.signature.inputs if info.signature else None
    return [name for name in inputs.input_names() if isinstance(name, str)] if inputs else []


def check_names(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """UsageError for a name MLflow would drop in silence."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
            raise UsageError(f"the model has no {what} {name!r}{hint}")
