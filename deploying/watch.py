"""Wait for a rollout, saying how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import InternalError, TemporarilyUnavailable

from deploying.endpoint import (
    current_entities,
    deployment,
    has_failed_update,
    is_broken,
    is_updating,
    progress,
    read,
)
from deploying.failure import explain, explain_delay
from model.errors import FormlineError

FASTEST_POLL_S, SLOWEST_POLL_S = 1.0, 10.0


class DeployFailed(FormlineError):
    """The rollout failed, or did not end in time; the message has the reason and what to do."""

    code = "DEPLOY_FAILED"


def wait_until_ready(
    client: WorkspaceClient, name: str, timeout_s: float, report: Callable[[str], None]
) -> dict[str, Any]:
    """Poll until the rollout has ended; `report` gets a line whenever something is new.

    Returns the endpoint as `GET` shows it. Raises DeployFailed with build and server logs.
    """
    began, told = time.monotonic(), ""
    for pause in _pauses():
        endpoint, line = _look(client, name)
        if line != told:
            report(f"{time.monotonic() - began:5.0f} s  {line}")
            told = line
        if endpoint is not None and _has_failed(endpoint):
            raise DeployFailed(explain(client, endpoint))
        if endpoint is not None and not is_updating(endpoint) and not _is_starting(endpoint):
            return endpoint
        left = timeout_s - (time.monotonic() - began)
        if left <= 0:
            delay = explain_delay(client, endpoint) if endpoint else line
            raise DeployFailed(f"{name} was not ready after {timeout_s:.0f} s.\n{delay}")
        time.sleep(min(pause, left))
    raise AssertionError("polls go on until one of the above")


def _pauses() -> Iterator[float]:
    pause = FASTEST_POLL_S
    while True:
        yield pause
        pause = min(pause * 1.3, SLOWEST_POLL_S)


def _look(client: WorkspaceClient, name: str) -> tuple[dict[str, Any] | None, str]:
    """The endpoint and its progress; a rollout does not end because one look at it failed."""
    try:
        endpoint = read(client, name)
    except (TimeoutError, TemporarilyUnavailable, InternalError) as error:
        return None, f"no answer ({error}); trying again"
    return endpoint, progress(endpoint)


def _has_failed(endpoint: Mapping[str, Any]) -> bool:
    """Whether the update failed, or what is served is down though nothing is being updated."""
    broken = any(map(is_broken, current_entities(endpoint)))
    down = endpoint["state"]["ready"] == "NOT_READY" and broken
    return has_failed_update(endpoint) or (down and not is_updating(endpoint))


def _is_starting(endpoint: Mapping[str, Any]) -> bool:
    """Whether something is on its way though no update is: a process that starts again."""
    on_the_way = ("DEPLOYMENT_CREATING", "DEPLOYMENT_RECOVERING")
    return endpoint["state"]["ready"] == "NOT_READY" and any(
        deployment(entity) in on_the_way for entity in current_entities(endpoint)
    )
