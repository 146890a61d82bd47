"""Why a rollout failed, or has not ended yet: states, the ends of the logs, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from databricks.sdk import WorkspaceClient
from databricks.sdk.errors.base import DatabricksError

from deploying.endpoint import PREFIX, current_entities, entity_line, is_broken, served_entities

LOG_LINES = 25
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


def explain(client: WorkspaceClient, endpoint: Mapping[str, Any]) -> str:
    """Why the last update failed, what to do about it, and what is still served."""
    entities = current_entities(endpoint)
    failed = [entity for entity in entities if is_broken(entity)] or entities
    parts = [f"{endpoint['name']}: {endpoint['state']['config_update']}"]
    for entity in failed:
        parts.append(entity_line(entity))
        parts.extend(_log_ends(client, endpoint["name"], entity["name"]))
    text = "\n".join(parts)
    return "\n".join([text, *_hints(text), *_still_served(endpoint)])


def explain_delay(client: WorkspaceClient, endpoint: Mapping[str, Any]) -> str:
    """How far the rollout has come, and how to go on waiting."""
    name, parts = endpoint["name"], []
    for entity in current_entities(endpoint):
        parts.append(entity_line(entity))
        parts.extend(_log_ends(client, name, entity["name"]))
    parts.append(
        f"The rollout goes on: the same command waits for it again, `describe {name}` shows it; "
        "GPU images take up to two hours."
    )
    return "\n".join(parts)


def _log_ends(client: WorkspaceClient, endpoint: str, entity: str) -> Iterator[str]:
    """The last lines of both logs, as far as there are any."""
    for kind in ("build-logs", "logs"):
        path = f"{PREFIX}/{endpoint}/served-models/{entity}/{kind}"
        try:
            reply = cast(dict[str, Any], client.api_client.do("GET", path))
            text = str(reply.get("logs") or "")
        except (DatabricksError, TimeoutError) as error:
            text = f"(not available: {error})"
        if lines := text.strip().splitlines():
            yield f"--- {kind} of {entity}, last lines:"
            yield "\n".join(lines[-LOG_LINES:])


def _hints(text: str) -> list[str]:
    found = [hint for pattern, hint in HINTS if re.search(pattern, text)][:2]
    return [f"What to do: {hint}" for hint in found or [OTHERWISE]]


def _still_served(endpoint: Mapping[str, Any]) -> list[str]:
    served = [entity["name"] for entity in served_entities(endpoint)]
    return [f"Still serving: {', '.join(served)}."] if served else []
