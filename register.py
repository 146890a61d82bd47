"""Turns weights, a chat template and a configuration into a registered model version.

    python register.py --weights DIR --name NAME [--template llama-3] [--runtime gpu] [--alias A]

Builds no engine. The registry is MLflow's own setting (MLFLOW_TRACKING_URI, MLFLOW_REGISTRY_URI,
or `--registry-uri`); `databricks-uc` is Unity Catalog, where NAME is catalog.schema.model.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import mlflow
import typer
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from model.config import ModelConfig, check_engine_args
from model.errors import ConfigError, FormlineError
from model.weights import check_weights, has_chat_template
from signature import input_example, model_signature

ROOT = Path(__file__).resolve().parent
ARTIFACT = "llm-model"
REQUIREMENTS = {"cpu": "requirements-cpu.txt", "gpu": "requirements.txt"}
REGISTRATION_WAIT_S = 3600
UNITY_CATALOG = "databricks-uc"
SPACE_MARGIN = 1.05

Runtime = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Registered:
    """A registered model version; `uri` loads it."""

    name: str
    version: str
    alias: str | None = None

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


def register_model(
    weights: str | Path,
    name: str,
    *,
    template: str | Mapping[str, Any] = "model",
    engine_args: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    runtime: Runtime = "cpu",
    alias: str | None = None,
    tags: Mapping[str, str] | None = None,
    string_columns: bool = False,
    registry_uri: str | None = None,
    wait_s: int = REGISTRATION_WAIT_S,
) -> Registered:
    """Registers the directory `weights` as a new version of `name`.

    `template` is a preset's name, {"jinja": text} or {"roles": {...}, "pre_prompt", "post_prompt"};
    `settings` are further fields of ModelConfig; `wait_s` bounds the wait for the registry.
    Raises ConfigError, before anything is copied, when something given is wrong.
    """
    folder = Path(weights).expanduser().resolve()
    size = check_weights(folder)
    settings = {**(settings or {}), "string_columns": string_columns}
    config = checked_config(folder, template, engine_args or {}, settings)
    with chosen_registry(registry_uri):
        ensure_registered_model(name)
        with scratch_folder(size) as scratch:
            logged = save(scratch, folder, config, runtime, string_columns)
            version = publish(scratch, logged, name, wait_s, tags)
        registered = Registered(name, str(version.version), alias)
        if alias:
            mlflow.MlflowClient().set_registered_model_alias(name, alias, registered.version)
    return registered


def checked_config(
    folder: Path,
    template: str | Mapping[str, Any],
    engine_args: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> ModelConfig:
    """The ModelConfig of what was asked for; ConfigError when it cannot work."""
    check_engine_args(engine_args)
    if template == "model" and not has_chat_template(folder):
        raise ConfigError(
            f"template: {folder} has no chat template of its own; choose a preset, a role map or "
            "a Jinja template"
        )
    given = {"chat_template": template, "engine_args": dict(engine_args)}
    return ModelConfig.from_mlflow({**settings, **given})


def read_requirements(path: Path) -> list[str]:
    """The pinned requirements in `path`, without comments."""
    lines = (line.split(" #")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


REGISTRY_VARIABLE = "MLFLOW_REGISTRY_URI"


@contextlib.contextmanager
def chosen_registry(uri: str | None) -> Iterator[None]:
    """Points MLflow at the registry `uri` for a while; None leaves MLflow's own setting."""
    if uri is None:
        yield  # setting it even to what it is would part it from the tracking URI for good
        return
    before = os.environ.get(REGISTRY_VARIABLE)
    mlflow.set_registry_uri(uri)
    try:
        yield
    finally:
        mlflow.set_registry_uri(before or "")  # "" follows the tracking URI
        if before is None:
            os.environ.pop(REGISTRY_VARIABLE, None)  # MLflow sets it for child processes


def in_unity_catalog() -> bool:
    return str(mlflow.get_registry_uri()).startswith(UNITY_CATALOG)


def ensure_registered_model(name: str) -> None:
    """Creates the registered model when it is new: a wrong name or a lack of rights shows now."""
    if in_unity_catalog() and name.count(".") != 2:
        raise ConfigError(f"name: Unity Catalog wants catalog.schema.model, not {name!r}")
    try:
        mlflow.MlflowClient().create_registered_model(name)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS"):
            raise ConfigError(f"name: the registry refuses {name!r}: {error.message}") from error


@contextlib.contextmanager
def scratch_folder(weights_bytes: int) -> Iterator[Path]:
    """A temporary folder that has room for the weights; TMPDIR chooses where."""
    with tempfile.TemporaryDirectory(prefix="formline-") as scratch:
        free = shutil.disk_usage(scratch).free
        needed = int(weights_bytes * SPACE_MARGIN)
        if free < needed:
            raise ConfigError(
                f"not enough disk space in {tempfile.gettempdir()}: the copy needs "
                f"{needed >> 20} MiB, {free >> 20} are free; set TMPDIR to a larger disk"
            )
        yield Path(scratch)


def save(
    scratch: Path, weights: Path, config: ModelConfig, runtime: Runtime, string_columns: bool
) -> Model:
    """Writes the MLflow model to `scratch/model`; loads nothing."""
    os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")  # another project's uv.lock
    logged = Model() if in_unity_catalog() else logged_model()
    mlflow.pyfunc.save_model(
        path=str(scratch / "model"),
        mlflow_model=logged,
        python_model=str(ROOT / "model" / "entrypoint.py"),
        artifacts={ARTIFACT: str(weights)},
        code_paths=[str(ROOT / "model"), str(ROOT / "signature.py")],
        model_config=config.to_mlflow(),
        signature=model_signature(string_columns=string_columns),
        input_example=input_example(),
        pip_requirements=read_requirements(ROOT / REQUIREMENTS[runtime]),
    )
    return logged


def logged_model() -> Model:
    """A new MLflow logged model to hold the files: a plain registry only points at them."""
    entity = mlflow.initialize_logged_model(name="formline")
    return Model(
        artifact_path=entity.artifact_location,
        model_uuid=entity.model_id,
        model_id=entity.model_id,
    )


def publish(
    scratch: Path, logged: Model, name: str, wait_s: int, tags: Mapping[str, str] | None
) -> ModelVersion:
    """Hands the files to the registry; Unity Catalog takes them itself, without a second copy."""
    source = str(scratch / "model")
    if not in_unity_catalog():
        mlflow.MlflowClient().log_model_artifacts(logged.model_id, source)
        mlflow.finalize_logged_model(logged.model_id, "READY")
        source = f"models:/{logged.model_id}"
    return mlflow.register_model(source, name, await_registration_for=wait_s, tags=tags)


def key_values(pairs: Iterable[str]) -> dict[str, Any]:
    """["max_model_len=2048"] -> {"max_model_len": 2048}; what is not JSON is a string."""
    result: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"{pair!r}: write KEY=VALUE")
        try:
            result[key] = json.loads(text)
        except ValueError:
            result[key] = text
    return result


def read_template(text: str) -> str | Mapping[str, Any]:
    """A preset's name, or a file: `.json` holds a role map, anything else is Jinja."""
    path = Path(text)
    if not path.is_file():
        return text
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return {"jinja": content}
    try:
        return cast("Mapping[str, Any]", json.loads(content))
    except ValueError as error:
        raise ConfigError(f"template: {path} is not JSON: {error}") from error


def main(
    weights: Annotated[Path, typer.Option(help="Directory of the weights")],
    name: Annotated[str, typer.Option(help="Registered model name")],
    template: Annotated[
        str, typer.Option(help="model, llama-3, chatml, mistral, gemma, phi-4, or a file")
    ] = "model",
    engine_arg: Annotated[
        list[str] | None, typer.Option(help="vLLM engine argument KEY=VALUE, repeatable")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="ModelConfig field KEY=VALUE, repeatable")
    ] = None,
    runtime: Annotated[str, typer.Option(help="cpu or gpu: which pinned requirements")] = "cpu",
    alias: Annotated[str | None, typer.Option(help="Alias to set on the new version")] = None,
    string_columns: Annotated[
        bool, typer.Option(help="String-typed optional columns, as SQL's ai_query wants them")
    ] = False,
    registry_uri: Annotated[str | None, typer.Option(help="MLflow registry")] = None,
    wait_s: Annotated[int, typer.Option(help="Seconds to wait for it")] = REGISTRATION_WAIT_S,
) -> None:
    """Register weights as a new version of a model, and print its URI and version."""
    try:
        if runtime not in REQUIREMENTS:
            raise ConfigError(f"runtime: {runtime!r} is not one of {', '.join(REQUIREMENTS)}")
        registered = register_model(
            weights,
            name,
            template=read_template(template),
            engine_args=key_values(engine_arg or []),
            settings=key_values(setting or []),
            runtime=cast("Runtime", runtime),
            alias=alias,
            string_columns=string_columns,
            registry_uri=registry_uri,
            wait_s=wait_s,
        )
    except FormlineError as error:
        typer.echo(f"register: {error.message}", err=True)
        raise typer.Exit(2) from error
    print(f"model uri: {registered.uri}")
    print(f"version: {registered.version}")


if __name__ == "__main__":
    typer.run(main)
