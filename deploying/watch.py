"""Wait for a rollout, saying how it goes, and tell the true reason when it fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from databricks.sdk import WorkspaceClient
from databricks.sdk.errors.base import DatabricksError

from deploying.plan import PREFIX
from model.errors import FormlineError

FASTEST_POLL_S, SLOWEST_POLL_S = 1.0, 10.0
LOG_LINES = 25
FAILED = ("UPDATE_FAILED", "UPDATE_CANCELED")
HINTS = (
    (
        r"out of memory|OOM|SIGKILL|exit code 137",
        "The model does not fit: choose a larger "
        "workload_type, or register it with a smaller max_model_len or a quantization.",
    ),
    (
        r"No matching distribution|ResolutionImpossible|pip",
        "A requirement cannot be installed there: `deploy_endpoint.py preflight` names it.",
    ),
    (
        r"secret",
        "A secret is missing: check its scope and key, and that the endpoint's creator "
        "may read it.",
    ),
    (
        r"[Tt]imed? ?out",
        "Loading took too long: log smaller weights, or deploy on a larger "
        "workload_type, which is also given more time.",
    ),
    (r"bfloat16", "That GPU has no bfloat16: register with --engine-arg dtype=float16."),
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
        endpoint = read(client, name)
        line = progress(endpoint)
        if line != told:
            report(f"{time.monotonic() - began:5.0f} s  {line}")
            told = line
        update = endpoint["state"]["config_update"]
        if update in FAILED:
            raise DeployFailed(explain(client, endpoint))
        if update == "NOT_UPDATING":
            return endpoint
        if time.monotonic() - began > timeout_s:
            raise DeployFailed(_still_going(name, timeout_s, line))
        time.sleep(pause)
    raise AssertionError("polls go on until one of the above")


def read(client: WorkspaceClient, name: str) -> dict[str, Any]:
    """The endpoint as `GET` shows it."""
    return _request(client, f"{PREFIX}/{name}")


def progress(endpoint: Mapping[str, Any]) -> str:
    """One line: the state, and each entity's own."""
    state = endpoint["state"]
    config = endpoint.get("pending_config") or endpoint.get("config") or {}
    entities = [_entity_line(entity) for entity in config.get("served_entities") or ()]
    return "; ".join([f"{state['ready']} {state['config_update']}", *entities])


def explain(client: WorkspaceClient, endpoint: Mapping[str, Any]) -> str:
    """Why the last update failed: states, logs, and what to do about it."""
    config = endpoint.get("pending_config") or endpoint.get("config") or {}
    entities = list(config.get("served_entities") or ())
    failed = [e for e in entities if _deployment(e) == "DEPLOYMENT_FAILED"] or entities
    parts = [f"{endpoint['name']}: {endpoint['state']['config_update']}"]
    for entity in failed:
        parts.append(_entity_line(entity))
        parts.extend(_log_ends(client, endpoint["name"], entity["name"]))
    text = "\n".join(parts)
    return "\n".join([text, *_hints(text), *_still_served(endpoint)])


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
    return [f"What to do: {hint}" for pattern, hint in HINTS if re.search(pattern, text)][:2]


def _still_served(endpoint: Mapping[str, Any]) -> list[str]:
    served = [e["name"] for e in (endpoint.get("config") or {}).get("served_entities") or ()]
    return [f"Still serving: {', '.join(served)}."] if served else []


def _still_going(name: str, timeout_s: float, line: str) -> str:
    return (
        f"{name} was not ready after {timeout_s:.0f} s ({line}). The rollout goes on: "
        f"`deploy_endpoint.py describe {name}` shows it; GPU images take up to two hours."
    )
