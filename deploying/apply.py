"""Deploy and delete endpoints: send what is missing, wait, and note which version was good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound

from deploying.bodies import config_body
from deploying.desired import DesiredEndpoint
from deploying.endpoint import PREFIX, find, is_updating, read
from deploying.history import as_tag, good_versions, with_good
from deploying.plan import Step, plan, serves
from deploying.watch import DeployFailed, wait_until_ready

Report = Callable[[str], None]
DEFAULT_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Outcome:
    """What was sent, and the endpoint afterwards; `changed` is False when nothing had to be."""

    endpoint: dict[str, Any]
    steps: tuple[Step, ...]

    @property
    def changed(self) -> bool:
        return bool(self.steps)


def deploy(
    client: WorkspaceClient,
    desired: DesiredEndpoint,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    wait: bool = True,
    report: Report = print,
) -> Outcome:
    """Create or update the endpoint; a second call with the same wish sends nothing.

    An update under way is waited for first. Without `wait` nothing is noted as good. Raises
    ConfigError, DeployFailed, DatabricksError.
    """
    if not wait:
        steps = plan(desired, find(client, desired.name))
        send(client, steps)
        return Outcome(read(client, desired.name), tuple(steps))
    outcome = roll_out(client, desired, timeout_s, report)
    history = with_good(good_versions(outcome.endpoint), desired.main_version)
    return keep_history(client, outcome, history)


def delete(client: WorkspaceClient, name: str) -> bool:
    """Delete the endpoint; False when there was none."""
    try:
        client.serving_endpoints.delete(name)
    except NotFound:
        return False
    return True


def roll_out(
    client: WorkspaceClient, desired: DesiredEndpoint, timeout_s: float, report: Report
) -> Outcome:
    """Send what is missing and wait until it is there."""
    current = find(client, desired.name)
    if current is not None and is_updating(current):
        current = _after_update(client, desired, current, timeout_s, report)
    steps = plan(desired, current)
    send(client, steps)
    return Outcome(wait_until_ready(client, desired.name, timeout_s, report), tuple(steps))


def send(client: WorkspaceClient, steps: list[Step]) -> None:
    """Send each step, in order."""
    for step in steps:
        client.api_client.do(step.method, step.path, body=step.body)


def keep_history(client: WorkspaceClient, outcome: Outcome, versions: list[str]) -> Outcome:
    """Write the history tag, if it is not what it should be. Not a change of the endpoint."""
    if versions == good_versions(outcome.endpoint):
        return outcome
    name = outcome.endpoint["name"]
    client.api_client.do("PATCH", f"{PREFIX}/{name}/tags", body={"add_tags": [as_tag(versions)]})
    return Outcome(read(client, name), outcome.steps)


def _after_update(
    client: WorkspaceClient,
    desired: DesiredEndpoint,
    current: dict[str, Any],
    timeout_s: float,
    report: Report,
) -> dict[str, Any]:
    """The endpoint once the update under way has ended; one with another aim may fail."""
    if serves(config_body(desired), current.get("pending_config")):
        return wait_until_ready(client, desired.name, timeout_s, report)
    report(f"{desired.name} is being updated by another call; waiting for its end")
    try:
        return wait_until_ready(client, desired.name, timeout_s, report)
    except DeployFailed:
        current = read(client, desired.name)
        if is_updating(current):
            raise
        return current
