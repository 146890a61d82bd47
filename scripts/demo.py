"""The worked example, end to end: register, serve, ask over REST, ask in a notebook's way.

    make demo

The last line says how many rows got a valid answer both ways.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import mlflow
import pandas as pd
import requests
from rich.console import Console
from rich.table import Table

from register import Registered, register_model
from scripts.scoring_server import serve
from scripts.small_model import NAME as SMALL_MODEL
from scripts.small_model import build
from scripts.worked_example import DOCUMENTS, PARAMS, QUESTION, is_valid

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".cache" / "demo"
LOG = HOME / "demo.log"
MODEL_NAME = "formline-demo"
FINGERPRINT = "formline.fingerprint"
SOURCES = ("model/**/*", "signature.py", "register.py", "requirements-cpu.txt", "scripts/demo.py")
ENGINE_ARGS = {
    "max_model_len": 2048,
    "max_num_seqs": 16,
    "enforce_eager": True,
    "dtype": "float32",  # CPUs without AVX-512 only emulate bfloat16, 20 times slower
    "kv_cache_memory_bytes": 1 << 30,
}
REQUEST_TIMEOUT_S = 60

T = TypeVar("T")
console = Console(width=100)


def main() -> int:
    """Runs the demo; the exit status is 0 when every answer was valid."""
    started = time.monotonic()
    HOME.mkdir(parents=True, exist_ok=True)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{HOME / 'mlflow.db'}"
    with chatter_to(LOG):
        weights = step("build the small model", lambda: build(ROOT / ".cache" / SMALL_MODEL))
        registered = step("register it with MLflow", lambda: ensure_registered(weights))
        over_rest = ask_over_rest(registered.uri)
        in_process = ask_in_process(registered.uri)
    print_answers(over_rest, in_process)
    valid = sum(map(both_valid, over_rest, in_process))
    console.print(f"{registered.uri} answered twice in {time.monotonic() - started:.0f} s")
    print(f"demo: {len(DOCUMENTS)} rows, {valid} valid")
    return 0 if valid == len(DOCUMENTS) else 1


@contextlib.contextmanager
def chatter_to(log: Path) -> Iterator[None]:
    """Sends what libraries and child processes print into a file; the console stays ours."""
    kept = [os.dup(1), os.dup(2)]
    console.file = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException:
        console.print(f"[red]failed[/]; what the libraries said is in {log}")
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in zip((1, 2), kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)


def step(title: str, work: Callable[[], T]) -> T:
    """Runs `work` under a spinner, then says how long it took."""
    started = time.monotonic()
    with console.status(f"{title} ..."):
        result = work()
    console.print(f"[green]done[/] {title} ({time.monotonic() - started:.0f} s)")
    return result


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


def ask_over_rest(uri: str) -> list[str]:
    """The answers of MLflow's scoring server, asked as any HTTP client would."""
    body = {"dataframe_records": [{"prompt": text} for text in DOCUMENTS], "params": PARAMS}
    with contextlib.ExitStack() as running:
        url = step("serve the version", lambda: running.enter_context(serve(uri)))
        reply = step("ask it over REST", lambda: invoke(url, body))
        step("stop the server", running.close)
    return [row["output"] for row in reply.json()["predictions"]]


def invoke(url: str, body: Mapping[str, object]) -> requests.Response:
    reply = requests.post(f"{url}/invocations", json=body, timeout=REQUEST_TIMEOUT_S)
    reply.raise_for_status()
    return reply


def ask_in_process(uri: str) -> list[str]:
    """The answers of the same version loaded into this process, as in a notebook."""
    from model.engine import shutdown_all

    model = step("load it with mlflow.pyfunc", lambda: mlflow.pyfunc.load_model(uri))
    rows = pd.DataFrame({"prompt": DOCUMENTS})
    answers = step("ask it with predict", lambda: model.predict(rows, params=PARAMS))
    step("stop the engine", shutdown_all)
    return list(answers["output"])


def both_valid(rest: str | None, in_process: str | None) -> bool:
    return is_valid(rest) and is_valid(in_process)


def print_answers(over_rest: Sequence[str | None], in_process: Sequence[str | None]) -> None:
    table = Table("document", "over REST", "with predict", "valid", title=QUESTION)
    for document, rest, local in zip(DOCUMENTS, over_rest, in_process, strict=True):
        valid = "yes" if both_valid(rest, local) else "no"
        table.add_row(document, rest, local, valid)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
