"""The requests that turn what is there into what is desired; none when it is there already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploying.bodies import config_body, gateway_body, tag_bodies
from deploying.desired import DesiredEndpoint
from deploying.endpoint import PREFIX, has_failed_update, is_broken, is_updating, served_entities
from model.errors import ConfigError


@dataclass(frozen=True)
class Step:
    """One request, exactly as it is sent. `rolls_out`: it starts an update to wait for."""

    method: str
    path: str
    body: dict[str, Any]
    rolls_out: bool = False


def plan(desired: DesiredEndpoint, current: Mapping[str, Any] | None) -> list[Step]:
    """The steps from `current`, an endpoint as `GET` shows it, or None when there is none.

    Raises ConfigError for a change that Databricks does not allow on a living endpoint.
    """
    if current is None:
        return [Step("POST", PREFIX, _creation(desired), rolls_out=True)]
    _refuse_fixed(desired, current)
    path = f"{PREFIX}/{desired.name}"
    steps = []
    if not _is_served(desired, current):
        steps.append(Step("PUT", f"{path}/config", config_body(desired), rolls_out=True))
    if new_tags := _missing_tags(desired, current):
        steps.append(Step("PATCH", f"{path}/tags", {"add_tags": new_tags}))
    gateway, there = gateway_body(desired), current.get("ai_gateway") or {}
    if not _holds(gateway, there):
        steps.append(Step("PUT", f"{path}/ai-gateway", {**there, **gateway}))
    return steps


def serves(config: Mapping[str, Any], shown: Mapping[str, Any] | None) -> bool:
    """Whether the config that the API shows is the one that `config` asks for."""
    if shown is None:
        return False
    wanted, there = (_by_name(c.get("served_entities") or ()) for c in (config, shown))
    same_entities = wanted.keys() == there.keys() and all(
        _holds(entity, there[name]) and _no_more_variables(entity, there[name])
        for name, entity in wanted.items()
    )
    return same_entities and _shares(config) == _shares(shown)


def _creation(desired: DesiredEndpoint) -> dict[str, Any]:
    body: dict[str, Any] = {"name": desired.name, "config": config_body(desired)}
    optional = {
        "tags": tag_bodies(desired),
        "ai_gateway": gateway_body(desired),
        "route_optimized": desired.route_optimized,
        "description": desired.description,
    }
    return {**body, **{key: value for key, value in optional.items() if value}}


def _refuse_fixed(desired: DesiredEndpoint, current: Mapping[str, Any]) -> None:
    """What an endpoint keeps from its creation on, since the API has no call to change it."""
    if desired.route_optimized != bool(current.get("route_optimized")):
        option = "--no-route-optimized" if desired.route_optimized else "--route-optimized"
        raise ConfigError(
            "route_optimized can only be chosen at creation: delete the endpoint first, or keep "
            f"it with {option}"
        )
    if desired.description not in (None, current.get("description") or ""):
        raise ConfigError(
            "a description can only be given at creation: leave --description out, or change it "
            "in the workspace"
        )


def _is_served(desired: DesiredEndpoint, current: Mapping[str, Any]) -> bool:
    """Whether it is served, or about to be. What failed is tried again, though it is the same."""
    if is_updating(current):
        return serves(config_body(desired), current.get("pending_config"))
    if has_failed_update(current) or any(map(is_broken, served_entities(current))):
        return False
    return serves(config_body(desired), current.get("config"))


def _holds(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Whether every field of `wanted` has its value in `shown`, which may have more."""
    return all(_equal(value, shown.get(key)) for key, value in wanted.items())


def _equal(wanted: Any, shown: Any) -> bool:
    """What is off or empty is not always shown."""
    if not wanted:
        return not shown
    if isinstance(wanted, dict):
        return _holds(wanted, shown if isinstance(shown, Mapping) else {})
    if isinstance(wanted, list):
        same_length = isinstance(shown, list) and len(shown) == len(wanted)
        return same_length and all(map(_equal, wanted, shown))
    return bool(wanted == shown)


def _no_more_variables(wanted: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    return set(shown.get("environment_vars") or ()) <= set(wanted.get("environment_vars") or ())


def _by_name(entities: Any) -> dict[str, Mapping[str, Any]]:
    return {entity["name"]: entity for entity in entities}


def _shares(config: Mapping[str, Any]) -> dict[str, int]:
    routes = (config.get("traffic_config") or {}).get("routes") or ()
    names = [r.get("served_entity_name") or r.get("served_model_name") for r in routes]
    return {name: r["traffic_percentage"] for name, r in zip(names, routes, strict=True)}


def _missing_tags(desired: DesiredEndpoint, current: Mapping[str, Any]) -> list[dict[str, Any]]:
    there = {tag["key"]: tag.get("value") for tag in current.get("tags") or ()}
    return [tag for tag in tag_bodies(desired) if there.get(tag["key"]) != tag.get("value")]
