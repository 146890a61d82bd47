"""The worked example, end to end: register, serve, ask over REST, ask in a notebook's way.

    make demo

Five retrieved documents are graded for whether they answer a question; each answer must be valid
for the JSON schema of `Grade`. The last line says how many were.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import mlflow
import pandas as pd
import requests
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Table

from register import Registered, register_model
from scripts.scoring_server import serve
from scripts.small_model import NAME as SMALL_MODEL
from scripts.small_model import build

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".cache" / "demo"
MODEL_NAME = "formline-demo"
FINGERPRINT = "formline.fingerprint"
SOURCES = (
    "model/**/*.py",
    "signature.py",
    "register.py",
    "requirements-cpu.txt",
    "scripts/demo.py",
)
ENGINE_ARGS = {
    "max_model_len": 2048,
    "max_num_seqs": 16,
    "enforce_eager": True,
    "dtype": "float32",  # CPUs without AVX-512 only emulate bfloat16, 20 times slower
    "kv_cache_memory_bytes": 1 << 30,
}

T = TypeVar("T")
console = Console(width=100)


class Grade(BaseModel):
    """Whether a document helps to answer the question."""

    grade: Literal["yes", "no"]


QUESTION = "東京で桜が見頃になるのはいつですか?"
DOCUMENTS = (
    "東京の桜は例年三月下旬に開花し、四月の初めに満開を迎えます。",
    "上野公園では約八百本の桜が植えられ、三月末から四月上旬が見頃です。",
    "味噌汁は出汁に味噌を溶かし、豆腐やわかめを加えて作ります。",
    "新幹線は東京と新大阪の間をおよそ二時間半で結んでいます。",
    "気象庁の発表では、今年の東京の満開は四月三日の見込みです。",
)
SYSTEM_PROMPT = (
    "You grade whether a retrieved document is relevant to a question. "
    f"Question: {QUESTION} Answer with the grade yes or no."
)
PARAMS = {
    "system_prompt": SYSTEM_PROMPT,
    "json_schema": json.dumps(Grade.model_json_schema()),
    "stop": "<|eot_id|>",
    "temperature": 0.1,
    "max_tokens": 64,
}


def main() -> int:
    """Runs the demo; the exit status is 0 when every answer was valid."""
    started = time.monotonic()
    quiet()
    weights = step("small model", lambda: build(ROOT / ".cache" / SMALL_MODEL))
    registered = step("registered version", lambda: ensure_registered(weights))
    over_rest = ask_over_rest(registered.uri)
    in_process = ask_in_process(registered.uri)
    print_answers(over_rest, in_process)
    valid = sum(map(both_valid, over_rest, in_process))
    console.print(f"took {time.monotonic() - started:.0f} s")
    print(f"demo: {len(DOCUMENTS)} rows, {valid} valid")
    return 0 if valid == len(DOCUMENTS) else 1


def quiet() -> None:
    """Keeps the libraries' own chatter out of the demo's output."""
    HOME.mkdir(parents=True, exist_ok=True)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{HOME / 'mlflow.db'}"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)


def step(title: str, work: Callable[[], T]) -> T:
    """Runs `work` under a spinner, then says how long it took."""
    started = time.monotonic()
    with console.status(f"{title} ..."):
        result = work()
    console.print(f"[green]done[/] {title} ({time.monotonic() - started:.0f} s)")
    return result


def ensure_registered(weights: Path) -> Registered:
    """The demo's version: the last one when it was made from the same files, else a new one."""
    if mlflow.get_experiment_by_name(MODEL_NAME) is None:
        mlflow.create_experiment(MODEL_NAME, artifact_location=(HOME / "artifacts").as_uri())
    mlflow.set_experiment(MODEL_NAME)
    made_from = fingerprint(weights)
    found = mlflow.MlflowClient().search_model_versions(f"name='{MODEL_NAME}'")
    for version in found:
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
    """A hash of the sources and of the weights' place and size."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        digest.update(path.read_bytes())
    for path in sorted(weights.iterdir()):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
    return digest.hexdigest()


def ask_over_rest(uri: str) -> list[str]:
    """The answers of MLflow's scoring server, asked as any HTTP client would."""
    body = {"dataframe_records": [{"prompt": text} for text in DOCUMENTS], "params": PARAMS}
    console.print("serving the version (about half a minute) ...")
    with serve(uri) as url:
        reply = step(
            "asked over REST", lambda: requests.post(f"{url}/invocations", json=body, timeout=120)
        )
    reply.raise_for_status()
    return [row["output"] for row in reply.json()["predictions"]]


def ask_in_process(uri: str) -> list[str]:
    """The answers of the same version loaded into this process, as in a notebook."""
    model = step("loaded with mlflow.pyfunc", lambda: mlflow.pyfunc.load_model(uri))
    rows = pd.DataFrame({"prompt": DOCUMENTS})
    answers = step("asked with predict", lambda: model.predict(rows, params=PARAMS))
    return [str(text) for text in answers["output"]]


def is_grade(text: str) -> bool:
    try:
        Grade.model_validate_json(text)
    except ValidationError:
        return False
    return True


def both_valid(rest: str, in_process: str) -> bool:
    return is_grade(rest) and is_grade(in_process)


def print_answers(over_rest: Sequence[str], in_process: Sequence[str]) -> None:
    table = Table("document", "REST", "pyfunc", "valid", title=QUESTION)
    for document, rest, local in zip(DOCUMENTS, over_rest, in_process, strict=True):
        table.add_row(document, rest, local, "yes" if both_valid(rest, local) else "no")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
