"""From a served entity to what its process needs: the version's URI, its variables, its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from serving.errors import ApiError
from serving.process import Launch
from serving.schemas import ServedEntityInput
from serving.secret_variables import resolve_secrets
from serving.settings import Settings


def check_entity(settings: Settings, entity: ServedEntityInput) -> None:
    """Raise unless its secrets are set here, and the registry holds its version, READY."""
    resolve_secrets(entity.environment_vars or {})
    client = MlflowClient(tracking_uri=settings.tracking_uri, registry_uri=settings.registry_uri)
    try:
        version = client.get_model_version(entity.entity_name, entity.entity_version)
    except MlflowException as error:
        raise ApiError(404, f"{_label(entity)} is not in the registry: {error.message}") from None
    if version.status != "READY":
        raise ApiError(400, f"{_label(entity)} is {version.status} in the registry, not READY.")


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
