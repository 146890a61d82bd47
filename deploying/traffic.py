"""Move an endpoint's traffic between versions: split it, or roll back to the last good one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from databricks.sdk import WorkspaceClient

from deploying.apply import DEFAULT_TIMEOUT_S, Outcome, Report, deploy, keep_history, roll_out
from deploying.desired import DesiredEndpoint
from deploying.endpoint import find, has_failed_update, main_version, served_entities, shares
from deploying.history import after_roll_back, good_versions
from model.errors import ConfigError

# A served entity's fields that go over to another version, by DesiredEndpoint's name for them.
KEPT = {
    "workload_type": "workload_type",
    "workload_size": "workload_size",
    "min_provisioned_concurrency": "min_provisioned_concurrency",
    "max_provisioned_concurrency": "max_provisioned_concurrency",
    "scale_to_zero": "scale_to_zero_enabled",
    "environment": "environment_vars",
    "instance_profile_arn": "instance_profile_arn",
}


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
    """Serve the last good version alone, or `version`: `last_good` says which one that is."""
    current = _existing(client, name)
    target = version or last_good(current)
    outcome = roll_out(client, _with_traffic(current, {target: 100}), timeout_s, report)
    return keep_history(client, outcome, after_roll_back(good_versions(current), target))


def last_good(endpoint: Mapping[str, Any]) -> str:
    """Where a roll-back goes. Raises ConfigError when no such version is on record.

    After a failed update: the version that still has most of the traffic. Where a version has
    traffic that was never noted as good, one on trial: the last that was. Else the one before.
    """
    active, good = main_version(endpoint), good_versions(endpoint)
    if has_failed_update(endpoint):
        return active
    on_trial = good and set(shares(endpoint)) - set(good)
    earlier = good if on_trial else [version for version in good if version != active]
    if not earlier:
        raise ConfigError(
            f"no good version before {active} is on record for {endpoint['name']}; "
            "name one with --to-version"
        )
    return earlier[0]


def _existing(client: WorkspaceClient, name: str) -> dict[str, Any]:
    current = find(client, name)
    if current is None:
        raise ConfigError(f"there is no endpoint {name!r}; `deploy_endpoint.py deploy` makes one")
    if not served_entities(current):
        raise ConfigError(f"{name} has never been ready; deploy a version to it first")
    return current


def _with_traffic(current: Mapping[str, Any], traffic: Mapping[str, int]) -> DesiredEndpoint:
    """Other versions, all else as the one with most of the traffic has it."""
    entities = served_entities(current)
    models = sorted({entity["entity_name"] for entity in entities})
    if len(models) > 1:
        raise ConfigError(
            f"{current['name']} serves several models ({', '.join(models)}), and a version number "
            "does not say which: use `deploy_endpoint.py deploy` for one of them"
        )
    main = main_version(current)
    [entity] = [e for e in entities if str(e["entity_version"]) == main][:1]
    kept = {ours: entity[theirs] for ours, theirs in KEPT.items() if entity.get(theirs) is not None}
    sized = {"workload_size": None} if "max_provisioned_concurrency" in kept else {}
    return DesiredEndpoint.check(
        name=current["name"],
        entity_name=models[0],
        traffic=dict(traffic),
        route_optimized=bool(current.get("route_optimized")),
        **{"scale_to_zero": False, **kept, **sized},
    )
