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
WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".gguf")


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
        raise ConfigError(f"{name} {wanted}: {error.message}") from None
    if not versions:
        raise ConfigError(f"{name} has no version in the registry; `register.py` makes one")
    return str(max(versions))


def read_version(name: str, version: str) -> Version:
    """Read it all. Raises ConfigError when the registry has no such version."""
    try:
        status = str(MlflowClient().get_model_version(name, version).status)
    except MlflowException as error:
        raise ConfigError(f"version {version} of {name}: {error.message}") from None
    if status != "READY":
        return Version(name, version, status)
    return _read_files(name, version, status)


def _read_files(name: str, version: str, status: str) -> Version:
    uri = f"models:/{name}/{version}"
    info = mlflow.models.get_model_info(uri)
    flavor = info.flavors.get("python_function", {})
    weights = (flavor.get("artifacts") or {}).get(WEIGHTS_ARTIFACT, {}).get("path")
    signature = info.signature
    return Version(
        name=name,
        version=version,
        status=status,
        has_inputs=bool(signature and signature.inputs),
        has_outputs=bool(signature and signature.outputs),
        python=str(flavor.get("python_version", "3.11")),
        requirements=tuple(_lines(_text(f"{uri}/requirements.txt"))),
        engine_args=(flavor.get("config") or {}).get("engine_args") or {},
        hf_config=json.loads(_text(f"{uri}/{weights}/config.json")) if weights else {},
        weights_bytes=_weights_bytes(f"{uri}/{weights}") if weights else 0,
    )


def _text(artifact_uri: str) -> str:
    return Path(mlflow.artifacts.download_artifacts(artifact_uri=artifact_uri)).read_text()


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        requirement = line.partition(" #")[0].strip()
        if requirement and not requirement.startswith(("#", "-")):
            yield requirement


def _weights_bytes(artifact_uri: str) -> int:
    files = mlflow.artifacts.list_artifacts(artifact_uri=artifact_uri)
    return sum(f.file_size or 0 for f in files if f.path.endswith(WEIGHT_FILES))
