"""From a served entity to what its process needs: the version's URI, its secrets, its files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from serving.errors import ApiError
from serving.process import Launch
from serving.schemas import ServedEntityInput
from serving.settings import Settings

SECRET = re.compile(r"^\{\{secrets/([A-Za-z0-9_.-]+)/([A-Za-z0-9_.-]+)\}\}$")


def check_version(settings: Settings, entity: ServedEntityInput) -> None:
    """Raise unless the registry holds this version, and it is ready."""
    client = MlflowClient(tracking_uri=settings.tracking_uri, registry_uri=settings.registry_uri)
    try:
        version = client.get_model_version(entity.entity_name, entity.entity_version)
    except MlflowException as error:
        raise ApiError(404, f"{_label(entity)} is not in the registry: {error.message}") from None
    if version.status != "READY":
        raise ApiError(400, f"{_label(entity)} is {version.status} in the registry, not READY.")


def check_secrets(entity: ServedEntityInput) -> None:
    """Raise unless every secret that the entity refers to can be resolved here."""
    resolve_secrets(entity.environment_vars or {})


def resolve_secrets(variables: Mapping[str, str]) -> dict[str, str]:
    """Put the value in place of each `{{secrets/scope/key}}`."""
    return {name: _resolved(name, value) for name, value in variables.items()}


def _resolved(name: str, value: str) -> str:
    match = SECRET.match(value)
    if match is None:
        return value
    source = secret_variable(*match.groups())
    if source not in os.environ:
        raise ApiError(
            400,
            f"environment_vars.{name} is the secret {value}; start the server with {source} set.",
        )
    return os.environ[source]


def secret_variable(scope: str, key: str) -> str:
    """The environment variable of the server that stands for one secret."""
    return "FORMLINE_SECRET_" + re.sub(r"[^A-Za-z0-9]", "_", f"{scope}_{key}").upper()


def preparer(
    settings: Settings, endpoint: str, entity: ServedEntityInput, run: str, sockets: Path
) -> Callable[[], Launch]:
    """How to launch `entity` of `endpoint`; `run` is unique to this rollout of it."""

    def prepare() -> Launch:
        return Launch(
            model_uri=f"models:/{entity.entity_name}/{entity.entity_version}",
            socket=sockets / run,
            log=log_path(settings.state_dir, endpoint, entity.name or ""),
            execution_s=settings.limits.execution_s,
            environment=_environment(settings, entity),
            log_bytes=settings.limits.log_bytes,
        )

    return prepare


def log_path(state_dir: Path, endpoint: str, entity: str) -> Path:
    """One log a served entity, over all its processes."""
    return state_dir / "logs" / endpoint / f"{entity}.log"


def _environment(settings: Settings, entity: ServedEntityInput) -> dict[str, str]:
    uris = {
        "MLFLOW_TRACKING_URI": settings.tracking_uri,
        "MLFLOW_REGISTRY_URI": settings.registry_uri,
    }
    return {
        "PYTHONUNBUFFERED": "1",
        **resolve_secrets(entity.environment_vars or {}),
        **{name: uri for name, uri in uris.items() if uri},
    }


def _label(entity: ServedEntityInput) -> str:
    return f"version {entity.entity_version} of the registered model {entity.entity_name!r}"
