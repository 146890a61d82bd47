"""MLflow's error replies without what they echo: the caller's rows, and stack traces."""

from __future__ import annotations

import json
import logging
import traceback

from mlflow.exceptions import MlflowException

from serving.errors import ApiError

logger = logging.getLogger(__name__)
# What MLflow writes: "Failed to predict data '...'. \nError: the message", "Failed to enforce
# schema of data '...' with schema '...'. Error: the message", "the message\nInput: \nthe body".
ECHO_BEFORE = (". \nError: ", "'. Error: ")
ECHO_AFTER = "\nInput: "
WRITING = frozenset({"predictions_to_json", "unwrapped_predictions_to_json"})


def clean(status: int, text: str) -> ApiError:
    """The error of a reply of MLflow's scoring app that was not 200."""
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    if isinstance(body, dict) and "message" in body:
        _log_trace(body.get("stack_trace"))
        return ApiError(status, _without_echo(str(body["message"])), code=body.get("error_code"))
    return ApiError(status, str(body) or "no reason given")


def from_exception(error: Exception) -> ApiError:
    """What a model raised, or what MLflow's app lets through: rows it could not parse or write."""
    if isinstance(error, ApiError):
        return error
    logger.error("a call failed", exc_info=error)
    if isinstance(error, MlflowException):
        message = _without_echo(error.message)
        return ApiError(error.get_http_status_code(), message, code=error.error_code)
    if WRITING & {frame.name for frame in traceback.extract_tb(error.__traceback__)}:
        return ApiError(500, "The model's answer could not be written as JSON; its log says why.")
    return ApiError(400, f"The payload could not be read as rows: {type(error).__name__}.")


def _without_echo(message: str) -> str:
    for mark in ECHO_BEFORE:
        _, found, after = message.rpartition(mark)
        message = after if found else message
    return message.partition(ECHO_AFTER)[0]


def _log_trace(trace: object) -> None:
    if trace:
        logger.error("the model failed\n%s", trace)
