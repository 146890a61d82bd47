"""What the registry, and the version's own files, say about a registered version."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from model.errors import ConfigError

WEIGHTS_ARTIFACT = "llm-model"
WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".gguf")  # vLLM loads the first kind there is


@dataclass(frozen=True)
class Version:
    """A registered version as far as deploying needs it. `weights_bytes` 0: none were found."""

    name: str
    version: str
    status: str
    has_inputs: bool = False
    has_outputs: bool = False
    python: str = "3.11"
    requirements: tuple[str, ...] = ()
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    hf_config: Mapping[str, Any] = field(default_factory=dict)
    weights_bytes: int = 0


def resolve_version(name: str, wanted: str) -> str:
    """The number of `wanted`: a number, `latest`, or `@alias`. Raises ConfigError."""
    client = MlflowClient()
    try:
        if wanted.startswith("@"):
            return str(client.get_model_version_by_alias(name, wanted[1:]).version)
        if wanted != "latest":
            return wanted
        versions = [int(v.version) for v in client.search_model_versions(f"name='{name}'")]
    except MlflowException as error:
        raise _not_found(f"{name} {wanted}", error) from None
    if not versions:
        raise _not_found(name, "it has no version")
    return str(max(versions))


def read_version(name: str, version: str) -> Version:
    """Read it all. Raises ConfigError when the registry has no such version."""
    try:
        status = str(MlflowClient().get_model_version(name, version).status)
    except MlflowException as error:
        raise _not_found(f"version {version} of {name}", error) from None
    if status != "READY":
        return Version(name, version, status)
    try:
        return _read_files(name, version, status)
    except (MlflowException, OSError, ValueError) as error:
        raise ConfigError(
            f"version {version} of {name} is registered, but its files cannot be read: {error}. "
            "Check that you may read them, or register it again"
        ) from None


def _not_found(what: str, reason: MlflowException | str) -> ConfigError:
    said = reason if isinstance(reason, str) else reason.message
    return ConfigError(
        f"{what}: {said}, in the registry {mlflow.get_registry_uri()}. `register.py` makes "
        "versions; --registry-uri names another registry (databricks-uc for Unity Catalog)"
    )


def _read_files(name: str, version: str, status: str) -> Version:
    uri = f"models:/{name}/{version}"
    info = mlflow.models.get_model_info(uri)
    flavor = info.flavors.get("python_function", {})
    artifact = (flavor.get("artifacts") or {}).get(WEIGHTS_ARTIFACT, {}).get("path")
    weights = f"{uri}/{artifact}" if artifact else None
    signature = info.signature
    return Version(
        name=name,
        version=version,
        status=status,
        has_inputs=bool(signature and signature.inputs),
        has_outputs=bool(signature and signature.outputs),
        python=str(flavor.get("python_version", "3.11")),
        requirements=tuple(_lines(_text(uri, "requirements.txt"))),
        engine_args=(flavor.get("config") or {}).get("engine_args") or {},
        hf_config=json.loads(_text(weights, "config.json") or "{}") if weights else {},
        weights_bytes=loaded_bytes(_sizes(weights)) if weights else 0,
    )


def loaded_bytes(files: Mapping[str, int]) -> int:
    """Bytes of the files that vLLM would load: one format of several, and no second copy in it."""
    for kind in WEIGHT_FILES:
        found = {name: size for name, size in files.items() if name.endswith(kind)}
        own_format = [name for name in found if not name.startswith("consolidated")]
        if found:
            return sum(found[name] for name in own_format or found)
    return 0


def _text(folder_uri: str, name: str) -> str:
    """A file's text; the empty string when there is no such file."""
    if name not in _sizes(folder_uri):
        return ""
    return Path(mlflow.artifacts.download_artifacts(f"{folder_uri}/{name}")).read_text("utf-8")


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        requirement = line.partition(" #")[0].strip()
        if requirement and not requirement.startswith(("#", "-")):
            yield requirement


def _sizes(folder_uri: str) -> dict[str, int]:
    """The files of a folder of artifacts by name, with their bytes."""
    files = mlflow.artifacts.list_artifacts(artifact_uri=folder_uri)
    return {Path(f.path).name: f.file_size or 0 for f in files if not f.is_dir}
