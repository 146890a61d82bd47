"""The PythonModel of a Spark worker: sends its rows to the executor's host."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from threading import local
from typing import Any, cast

import pandas as pd
import yaml
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PythonModel

from model.errors import EngineUnavailable
from model.executor.identity import current_task, executor_of
from model.executor.room import Lease, Room

ATTEMPTS = 3
START_TIMEOUT_S = 1800.0


class ExecutorModel(PythonModel):
    """Answers as FormlineModel does, through the one engine of the executor."""

    def load_context(self, context: Any) -> None:
        """Finds the executor's host, or starts it.

        Raises MlflowException (TEMPORARILY_UNAVAILABLE) when the engine cannot start.
        """
        folder = model_folder(next(iter(context.artifacts.values())))
        config = dict(context.model_config or {})
        executor = executor_of(current_task())
        self._room = Room.of(executor, model_identity(folder), config)
        self._lease = Lease(str(folder), config, executor.process, executor.gpus)
        self._threads = local()
        self._threads.connection = self._connect()

    # The hint is one MLflow makes no signature from; without any it would warn at every load.
    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One record a row, in order. A host that dies on the way is replaced, and asked again."""
        for _ in range(ATTEMPTS):
            try:
                kind, reply = self._ask(model_input, params)
            except (EOFError, OSError):
                self._threads.connection = None
                continue
            if kind == "frame":
                return cast("pd.DataFrame", reply)
            code, message = reply
            raise MlflowException(message, error_code=_code(code))
        raise _unavailable("the executor's engine died several times on this call")

    def _ask(self, model_input: Any, params: Any) -> tuple[str, Any]:
        """One call over this thread's own connection: calls of several threads run side by side."""
        connection = getattr(self._threads, "connection", None)
        if connection is None:
            connection = self._threads.connection = self._connect()
        connection.send((model_input, params))
        answer: tuple[str, Any] = connection.recv()
        return answer

    def _connect(self) -> Connection[Any, Any]:
        try:
            return self._room.connect_or_start(self._lease, START_TIMEOUT_S)
        except EngineUnavailable as error:
            raise _unavailable(error.message) from error


def model_folder(artifact: str) -> Path:
    """The folder of the whole model (with the file MLmodel) that an artifact belongs to."""
    for folder in Path(artifact).resolve().parents:
        if (folder / "MLmodel").is_file():
            return folder
    raise _unavailable(f"no MLmodel file above {artifact}")


def model_identity(folder: Path) -> str:
    """The same for all copies of one model version."""
    described = yaml.safe_load((folder / "MLmodel").read_text(encoding="utf-8"))
    return str(described.get("model_uuid") or folder)


def _unavailable(message: str) -> MlflowException:
    return MlflowException(message, error_code=_code("TEMPORARILY_UNAVAILABLE"))


def _code(name: str) -> int:
    from mlflow.protos.databricks_pb2 import ErrorCode

    known = ErrorCode.DESCRIPTOR.values_by_name
    return int(known[name].number if name in known else ErrorCode.Value("INTERNAL_ERROR"))
