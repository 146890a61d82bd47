"""Errors of a whole call, as MLflow's scoring server answers them: a code and our message only.

The scoring server puts the caller's rows before the message of any MlflowException, and answers
other exceptions with a stack trace. So everything leaves `predict` as a CallError, whose message
cannot be changed any more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ErrorCode

from model.errors import EngineError, FormlineError, RequestError

_logger = logging.getLogger(__name__)
_UNEXPECTED = "the model failed on this call; its log says why"


class CallError(MlflowException):
    """An MlflowException that keeps its message; `error_code` gives the HTTP status."""

    def __init__(self, message: str, error_code: str) -> None:
        self._text = message
        super().__init__(message, error_code=ErrorCode.Value(error_code))

    @property
    def message(self) -> str:
        """Our message, whatever it is set to."""
        return self._text

    @message.setter
    def message(self, _: str) -> None:
        """The scoring server would add the caller's rows here."""

    def __reduce__(self) -> tuple[type[CallError], tuple[str, str]]:
        return CallError, (self._text, self.error_code)


def to_call_error(error: FormlineError) -> CallError:
    """The CallError of an error raised on purpose: 400 for the caller's, 4xx/5xx for ours."""
    if isinstance(error, RequestError):
        return CallError(error.message, "INVALID_PARAMETER_VALUE")
    return CallError(
        error.message, error.code if isinstance(error, EngineError) else "INTERNAL_ERROR"
    )


@contextmanager
def as_call_errors() -> Iterator[None]:
    """Whatever is raised inside leaves as a CallError; the unexpected is logged with its trace."""
    try:
        yield
    except MlflowException:
        raise
    except FormlineError as error:
        raise to_call_error(error) from None
    except Exception:
        _logger.exception("Unexpected error in a call")
        raise CallError(_UNEXPECTED, "INTERNAL_ERROR") from None
