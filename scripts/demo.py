"""The worked example, end to end: register, deploy, ask in the three ways that people ask.

    make demo

A local endpoint serves the version; REST and `mlflow.deployments` ask it, and a notebook's
`predict` asks the version in process. The last line says how many rows got valid answers in all
three ways.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import requests
from databricks.sdk import WorkspaceClient
from mlflow.deployments import get_deploy_client
from rich.table import Table

from deploy_endpoint import DesiredEndpoint, Outcome, deploy
from register import Registered, register_model
from scripts.console import chatter_to, console, step
from scripts.local_endpoint import local_endpoint
from scripts.small_model import NAME as SMALL_MODEL
from scripts.small_model import build
from scripts.worked_example import DOCUMENTS, PARAMS, QUESTION, is_valid

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".cache" / "demo"
LOG = HOME / "demo.log"
TRACKING_URI = f"sqlite:///{HOME / 'mlflow.db'}"
MODEL_NAME = "formline-demo"
ENDPOINT = "grader"
FINGERPRINT = "formline.fingerprint"
SOURCES = ("model/**/*", "signature.py", "register.py", "requirements-cpu.txt", "scripts/demo.py")
ENGINE_ARGS = {
    "max_model_len": 2048,
    "max_num_seqs": 16,
    "enforce_eager": True,
    "dtype": "float32",  # CPUs without AVX-512 only emulate bfloat16, 20 times slower
    "kv_cache_memory_bytes": 1 << 30,
}
PATIENCE_S = 300  # a busy laptop may need longer for its first answer than a server allows

Answer = str | None


def main() -> int:
    """Runs the demo; the exit status is 0 when every answer was valid."""
    started = time.monotonic()
    HOME.mkdir(parents=True, exist_ok=True)
    os.environ["MLFLOW_TRACKING_URI"] = TRACKING_URI
    with chatter_to(LOG):
        weights = step("build the small model", lambda: build(ROOT / ".cache" / SMALL_MODEL))
        registered = step("register it with MLflow", lambda: ensure_registered(weights))
        over_rest, over_mlflow = ask_the_endpoint(registered)
        in_process = ask_in_process(registered.uri)
    answers = list(zip(over_rest, over_mlflow, in_process, strict=True))
    print_answers(answers)
    valid = sum(map(all_valid, answers))
    console.print(f"{registered.uri} answered three times in {time.monotonic() - started:.0f} s")
    print(f"demo: {len(DOCUMENTS)} rows, {valid} valid")
    return 0 if valid == len(DOCUMENTS) else 1


def ensure_registered(weights: Path) -> Registered:
    """The demo's version: an earlier one when it was made from the same files, else a new one."""
    if mlflow.get_experiment_by_name(MODEL_NAME) is None:
        mlflow.create_experiment(MODEL_NAME, artifact_location=(HOME / "artifacts").as_uri())
    mlflow.set_experiment(MODEL_NAME)
    made_from = fingerprint(weights)
    for version in mlflow.MlflowClient().search_model_versions(f"name='{MODEL_NAME}'"):
        if version.tags.get(FINGERPRINT) == made_from:
            return Registered(MODEL_NAME, str(version.version))
    return register_model(
        weights,
        MODEL_NAME,
        engine_args=ENGINE_ARGS,
        settings={"served_deadline_s": PATIENCE_S},
        alias="champion",
        tags={FINGERPRINT: made_from},
    )


def fingerprint(weights: Path) -> str:
    """A hash of the sources and of the weights' names and sizes."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.read_bytes())
    for path in sorted(weights.iterdir()):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
    return digest.hexdigest()


def ask_the_endpoint(version: Registered) -> tuple[list[Answer], list[Answer]]:
    """The answers of a local endpoint, over REST and through MLflow's client for Databricks."""
    state_dir = HOME / "serving"
    shutil.rmtree(state_dir, ignore_errors=True)
    inputs = {"dataframe_records": [{"prompt": text} for text in DOCUMENTS], "params": PARAMS}
    with contextlib.ExitStack() as running:
        endpoint = local_endpoint(state_dir, TRACKING_URI)
        url = step("start the local endpoint", lambda: running.enter_context(endpoint))
        step("deploy with deploy_endpoint.py", lambda: deploy_version(version))
        over_rest = step("ask it over REST", lambda: invoke(url, inputs))
        over_mlflow = step("ask it with mlflow.deployments", lambda: predict(inputs))
        step("stop the local endpoint", running.close)
    return over_rest, over_mlflow


def deploy_version(version: Registered) -> Outcome:
    """As for a Databricks workspace, which DATABRICKS_HOST would name."""
    wanted = DesiredEndpoint.check(
        name=ENDPOINT, entity_name=version.name, traffic={version.version: 100}
    )
    return deploy(WorkspaceClient(), wanted, report=print)


def invoke(url: str, inputs: Mapping[str, Any]) -> list[Answer]:
    reply = requests.post(
        f"{url}/serving-endpoints/{ENDPOINT}/invocations", json=inputs, timeout=PATIENCE_S
    )
    reply.raise_for_status()
    return [row["output"] for row in reply.json()["predictions"]]


def predict(inputs: Mapping[str, Any]) -> list[Answer]:
    """As written for Databricks."""
    client = get_deploy_client("databricks")
    reply = client.predict(endpoint=ENDPOINT, inputs=inputs)
    return [row["output"] for row in reply["predictions"]]


def ask_in_process(uri: str) -> list[Answer]:
    """The answers of the same version loaded into this process, as in a notebook."""
    from model.engine import shutdown_all

    model = step("load it with mlflow.pyfunc", lambda: mlflow.pyfunc.load_model(uri))
    rows = pd.DataFrame({"prompt": DOCUMENTS})
    answers = step("ask it with predict", lambda: model.predict(rows, params=PARAMS))
    step("stop the engine", shutdown_all)
    return list(answers["output"])


def all_valid(answers: Sequence[Answer]) -> bool:
    """Whether a document's answers, one a way of asking, are all valid."""
    return all(map(is_valid, answers))


def print_answers(answers: Sequence[Sequence[Answer]]) -> None:
    table = Table("document", "REST", "mlflow.deployments", "predict", "valid", title=QUESTION)
    for document, given in zip(DOCUMENTS, answers, strict=True):
        shown = [" ".join((answer or "no answer").split()) for answer in given]
        table.add_row(document, *shown, "yes" if all_valid(given) else "no")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
