"""An endpoint as the API's `GET` shows it, and what that says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound

PREFIX = "/api/2.0/serving-endpoints"


def read(client: WorkspaceClient, name: str) -> dict[str, Any]:
    """The endpoint. Raises NotFound."""
    return cast(dict[str, Any], client.api_client.do("GET", f"{PREFIX}/{name}"))


def find(client: WorkspaceClient, name: str) -> dict[str, Any] | None:
    """The endpoint, or None."""
    try:
        return read(client, name)
    except NotFound:
        return None


def is_updating(endpoint: Mapping[str, Any]) -> bool:
    """Whether a config is being rolled out."""
    return bool(endpoint["state"]["config_update"] == "IN_PROGRESS")


def has_failed_update(endpoint: Mapping[str, Any]) -> bool:
    """Whether the last update ended without being taken over."""
    return endpoint["state"]["config_update"] in ("UPDATE_FAILED", "UPDATE_CANCELED")


def current_entities(endpoint: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those being rolled out, or else those that are served."""
    config = endpoint.get("pending_config") or endpoint.get("config") or {}
    return list(config.get("served_entities") or ())


def served_entities(endpoint: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of the active config; none before the first rollout has ended."""
    return list((endpoint.get("config") or {}).get("served_entities") or ())


def deployment(entity: Mapping[str, Any]) -> str:
    """A served entity's own state, in the API's words."""
    return str((entity.get("state") or {}).get("deployment", "unknown"))


def is_broken(entity: Mapping[str, Any]) -> bool:
    """Whether a served entity has failed for good."""
    return deployment(entity) in ("DEPLOYMENT_FAILED", "DEPLOYMENT_ABORTED")


def shares(endpoint: Mapping[str, Any]) -> dict[str, int]:
    """Version -> percent in the active config; 0 for one that is served without any traffic."""
    routes = (endpoint["config"].get("traffic_config") or {}).get("routes") or ()
    by_name = {
        r.get("served_entity_name") or r["served_model_name"]: r["traffic_percentage"]
        for r in routes
    }
    return {str(e["entity_version"]): by_name.get(e["name"], 0) for e in served_entities(endpoint)}


def main_version(endpoint: Mapping[str, Any]) -> str:
    """The version with the largest share of the active config."""
    found = shares(endpoint)
    return max(found, key=found.__getitem__)


def progress(endpoint: Mapping[str, Any]) -> str:
    """One line: the state, and each entity's own."""
    state = endpoint["state"]
    entities = map(entity_line, current_entities(endpoint))
    return "; ".join([f"{state['ready']} {state['config_update']}", *entities])


def entity_line(entity: Mapping[str, Any]) -> str:
    """A served entity's name, state and message."""
    message = (entity.get("state") or {}).get("deployment_state_message", "")
    return f"{entity['name']}: {deployment(entity)} {message}".rstrip()
