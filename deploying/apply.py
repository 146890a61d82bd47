"""Deploy, split traffic, roll back, describe and delete endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound

from deploying.desired import DesiredEndpoint
from deploying.history import after_roll_back, as_tag, good_versions, with_good
from deploying.plan import PREFIX, Step, plan, serves
from deploying.watch import DeployFailed, read, wait_until_ready
from model.errors import ConfigError

Report = Callable[[str], None]
DEFAULT_TIMEOUT_S = 3600.0
COPIED = (
    "workload_type",
    "workload_size",
    "min_provisioned_concurrency",
    "max_provisioned_concurrency",
    "scale_to_zero_enabled",
    "environment_vars",
)


@dataclass(frozen=True)
class Outcome:
    """What was sent, and the endpoint afterwards; `changed` is False when nothing had to be."""

    endpoint: dict[str, Any]
    steps: tuple[Step, ...]

    @property
    def changed(self) -> bool:
        return bool(self.steps)


def find(client: WorkspaceClient, name: str) -> dict[str, Any] | None:
    """The endpoint as `GET` shows it, or None."""
    try:
        return read(client, name)
    except NotFound:
        return None


def deploy(
    client: WorkspaceClient,
    desired: DesiredEndpoint,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    wait: bool = True,
    report: Report = print,
) -> Outcome:
    """Create or update the endpoint; a second call with the same wish sends nothing.

    An update under way is waited for first. Raises ConfigError, DeployFailed, DatabricksError.
    """
    if not wait:
        steps = plan(desired, find(client, desired.name))
        send(client, steps)
        return Outcome(read(client, desired.name), tuple(steps))
    outcome = _roll_out(client, desired, timeout_s, report)
    history = with_good(good_versions(outcome.endpoint), desired.main_version)
    return _keep_history(client, outcome, history)


def split_traffic(
    client: WorkspaceClient,
    name: str,
    traffic: Mapping[str, int],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    report: Report = print,
) -> Outcome:
    """Serve the versions of `traffic` (version -> percent) with the settings of the current one."""
    desired = _with_traffic(_existing(client, name), traffic)
    return deploy(client, desired, timeout_s=timeout_s, report=report)


def roll_back(
    client: WorkspaceClient,
    name: str,
    *,
    version: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    report: Report = print,
) -> Outcome:
    """Serve the last good version before the current one, or `version`.

    After a failed update the current one is the last good one, and is rolled out anew.
    """
    current = _existing(client, name)
    target = version or _last_good(current)
    outcome = _roll_out(client, _with_traffic(current, {target: 100}), timeout_s, report)
    return _keep_history(client, outcome, after_roll_back(good_versions(current), target))


def delete(client: WorkspaceClient, name: str) -> bool:
    """Delete the endpoint; False when there was none."""
    try:
        client.serving_endpoints.delete(name)
    except NotFound:
        return False
    return True


def send(client: WorkspaceClient, steps: list[Step]) -> None:
    """Send each step, in order."""
    for step in steps:
        client.api_client.do(step.method, step.path, body=step.body)


def main_version(endpoint: Mapping[str, Any]) -> str:
    """The version with the largest share of the active config."""
    entities = {e["name"]: e for e in endpoint["config"]["served_entities"]}
    routes = (endpoint["config"].get("traffic_config") or {}).get("routes") or ()
    shares = {
        r.get("served_entity_name") or r["served_model_name"]: r["traffic_percentage"]
        for r in routes
    }
    name = max(entities, key=lambda entity: shares.get(entity, 0))
    return str(entities[name]["entity_version"])


def _roll_out(
    client: WorkspaceClient, desired: DesiredEndpoint, timeout_s: float, report: Report
) -> Outcome:
    """Send what is missing and wait until it is there."""
    current = find(client, desired.name)
    if current is not None and _updating(current):
        current = _after_update(client, desired, current, timeout_s, report)
    steps = plan(desired, current)
    send(client, steps)
    return Outcome(wait_until_ready(client, desired.name, timeout_s, report), tuple(steps))


def _after_update(
    client: WorkspaceClient,
    desired: DesiredEndpoint,
    current: dict[str, Any],
    timeout_s: float,
    report: Report,
) -> dict[str, Any]:
    """The endpoint once the update under way has ended; one with another aim may fail."""
    if serves(desired.config(), current.get("pending_config")):
        return wait_until_ready(client, desired.name, timeout_s, report)
    report(f"{desired.name} is being updated by another call; waiting for its end")
    try:
        return wait_until_ready(client, desired.name, timeout_s, report)
    except DeployFailed:
        return read(client, desired.name)


def _existing(client: WorkspaceClient, name: str) -> dict[str, Any]:
    current = find(client, name)
    if current is None:
        raise ConfigError(f"there is no endpoint {name!r}; `deploy_endpoint.py deploy` makes one")
    if not (current.get("config") or {}).get("served_entities"):
        raise ConfigError(f"{name} has never been ready; deploy a version to it first")
    return current


def _last_good(current: Mapping[str, Any]) -> str:
    active = main_version(current)
    if current["state"]["config_update"] in ("UPDATE_FAILED", "UPDATE_CANCELED"):
        return active
    earlier = [version for version in good_versions(current) if version != active]
    if not earlier:
        raise ConfigError(
            f"no good version before {active} is on record for {current['name']}; "
            "name one with --to-version"
        )
    return earlier[0]


def _with_traffic(current: Mapping[str, Any], traffic: Mapping[str, int]) -> DesiredEndpoint:
    """Other versions, all else as it is."""
    entity = current["config"]["served_entities"][0]
    settings = {key: entity[key] for key in COPIED if entity.get(key) is not None}
    renamed = {"scale_to_zero_enabled": "scale_to_zero", "environment_vars": "environment"}
    return DesiredEndpoint.check(
        name=current["name"],
        entity_name=entity["entity_name"],
        traffic=dict(traffic),
        route_optimized=bool(current.get("route_optimized")),
        **{renamed.get(key, key): value for key, value in settings.items()},
    )


def _updating(endpoint: Mapping[str, Any]) -> bool:
    return bool(endpoint["state"]["config_update"] == "IN_PROGRESS")


def _keep_history(client: WorkspaceClient, outcome: Outcome, versions: list[str]) -> Outcome:
    """Write the history tag, if it is not what it should be. Not a change of the endpoint."""
    if versions == good_versions(outcome.endpoint):
        return outcome
    name = outcome.endpoint["name"]
    client.api_client.do("PATCH", f"{PREFIX}/{name}/tags", body={"add_tags": [as_tag(versions)]})
    return Outcome(read(client, name), outcome.steps)
