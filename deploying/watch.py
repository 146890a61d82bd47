"""Wait for a rollout, saying how it goes, and tell the true reason when it fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import InternalError, TemporarilyUnavailable
from databricks.sdk.errors.base import DatabricksError

from deploying.plan import PREFIX, is_broken
from model.errors import FormlineError

FASTEST_POLL_S, SLOWEST_POLL_S = 1.0, 10.0
LOG_LINES = 25
FAILED = ("UPDATE_FAILED", "UPDATE_CANCELED")
HINTS = (
    (
        r"out of memory|OutOfMemory|OOM|SIGKILL|exit code 137|No available memory for the cache",
        "The model does not fit: choose a larger workload type, or register it with a smaller "
        "max_model_len or a quantization.",
    ),
    (
        r"No matching distribution|ResolutionImpossible|conflicting dependencies",
        "A requirement cannot be installed there: `deploy_endpoint.py preflight` names it.",
    ),
    (
        r"(?i)secret[^\n]*(not exist|not found|denied|permission)|SECRET_\w+ set",
        "A secret is missing: check its scope and key, and that the endpoint's creator may read "
        "it.",
    ),
    (
        r"(?i)(deployment|loading|container|server)[^\n]*timed? ?out|not ready after",
        "Loading took too long: log smaller weights, or deploy on a larger workload type, which "
        "is also given more time.",
    ),
    (r"(?i)bfloat16[^\n]*support", "Register it with --engine-arg dtype=float16."),
)
OTHERWISE = (
    "The logs above say why. Mend it, register the version again and deploy that; "
    "`deploy_endpoint.py rollback` serves the last good one until then."
)


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
            raise DeployFailed(_still_going(client, name, endpoint, timeout_s, line))
        time.sleep(min(pause, left))
    raise AssertionError("polls go on until one of the above")


def read(client: WorkspaceClient, name: str) -> dict[str, Any]:
    """The endpoint as `GET` shows it."""
    return _request(client, f"{PREFIX}/{name}")


def progress(endpoint: Mapping[str, Any]) -> str:
    """One line: the state, and each entity's own."""
    state = endpoint["state"]
    entities = [_entity_line(entity) for entity in _entities(endpoint)]
    return "; ".join([f"{state['ready']} {state['config_update']}", *entities])


def explain(client: WorkspaceClient, endpoint: Mapping[str, Any]) -> str:
    """Why the last update failed: states, logs, and what to do about it."""
    entities = _entities(endpoint)
    failed = [entity for entity in entities if is_broken(entity)] or entities
    parts = [f"{endpoint['name']}: {endpoint['state']['config_update']}"]
    for entity in failed:
        parts.append(_entity_line(entity))
        parts.extend(_log_ends(client, endpoint["name"], entity["name"]))
    text = "\n".join(parts)
    return "\n".join([text, *_hints(text), *_still_served(endpoint)])


def is_updating(endpoint: Mapping[str, Any]) -> bool:
    """Whether a config is being rolled out."""
    return bool(endpoint["state"]["config_update"] == "IN_PROGRESS")


def _look(client: WorkspaceClient, name: str) -> tuple[dict[str, Any] | None, str]:
    """The endpoint and its progress; a rollout does not end because one look at it failed."""
    try:
        endpoint = read(client, name)
    except (TimeoutError, TemporarilyUnavailable, InternalError) as error:
        return None, f"no answer ({error}); trying again"
    return endpoint, progress(endpoint)


def _has_failed(endpoint: Mapping[str, Any]) -> bool:
    """Whether the update failed, or what is served is down though nothing is being updated."""
    down = endpoint["state"]["ready"] == "NOT_READY" and any(map(is_broken, _entities(endpoint)))
    return endpoint["state"]["config_update"] in FAILED or (down and not is_updating(endpoint))


def _is_starting(endpoint: Mapping[str, Any]) -> bool:
    """Whether something is on its way though no update is: a process that starts again."""
    on_the_way = ("DEPLOYMENT_CREATING", "DEPLOYMENT_RECOVERING")
    return endpoint["state"]["ready"] == "NOT_READY" and any(
        _deployment(entity) in on_the_way for entity in _entities(endpoint)
    )


def _entities(endpoint: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those being rolled out, or else those that are served."""
    config = endpoint.get("pending_config") or endpoint.get("config") or {}
    return list(config.get("served_entities") or ())


def _pauses() -> Iterator[float]:
    pause = FASTEST_POLL_S
    while True:
        yield pause
        pause = min(pause * 1.3, SLOWEST_POLL_S)


def _request(client: WorkspaceClient, path: str) -> dict[str, Any]:
    return cast(dict[str, Any], client.api_client.do("GET", path))


def _deployment(entity: Mapping[str, Any]) -> str:
    return str((entity.get("state") or {}).get("deployment", "unknown"))


def _entity_line(entity: Mapping[str, Any]) -> str:
    message = (entity.get("state") or {}).get("deployment_state_message", "")
    return f"{entity['name']}: {_deployment(entity)} {message}".rstrip()


def _log_ends(client: WorkspaceClient, endpoint: str, entity: str) -> Iterator[str]:
    """The last lines of both logs, as far as there are any."""
    for kind in ("build-logs", "logs"):
        path = f"{PREFIX}/{endpoint}/served-models/{entity}/{kind}"
        try:
            text = str(_request(client, path).get("logs") or "")
        except DatabricksError as error:
            text = f"(not available: {error})"
        if lines := text.strip().splitlines():
            yield f"--- {kind} of {entity}, last lines:"
            yield "\n".join(lines[-LOG_LINES:])


def _hints(text: str) -> list[str]:
    found = [hint for pattern, hint in HINTS if re.search(pattern, text)][:2]
    return [f"What to do: {hint}" for hint in found or [OTHERWISE]]


def _still_served(endpoint: Mapping[str, Any]) -> list[str]:
    served = [e["name"] for e in (endpoint.get("config") or {}).get("served_entities") or ()]
    return [f"Still serving: {', '.join(served)}."] if served else []


def _still_going(
    client: WorkspaceClient,
    name: str,
    endpoint: Mapping[str, Any] | None,
    timeout_s: float,
    line: str,
) -> str:
    waiting = _entities(endpoint) if endpoint else []
    logs = [part for entity in waiting for part in _log_ends(client, name, entity["name"])]
    said = (
        f"{name} was not ready after {timeout_s:.0f} s ({line}). The rollout goes on: the same "
        f"command waits for it again, `deploy_endpoint.py describe {name}` shows it; GPU images "
        "take up to two hours."
    )
    return "\n".join([said, *logs])
