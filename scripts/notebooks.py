"""Runs the notebooks top to bottom against a local registry and a local endpoint.

    python -m scripts.notebooks [NAME ...]      and keep their outputs in the files

Each notebook reads where things are from the environment, as set here; on Databricks the defaults
in its first cell hold. What a library writes to standard error is not kept: it holds this machine's
paths and times.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from scripts.small_model import NAME as SMALL_MODEL
from scripts.small_model import build

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
CELL_TIMEOUT_S = 1800  # an engine start on a busy machine
START_S = 180.0
STOP_S = 60
TOKEN = "local"  # noqa: S105  the local endpoint on loopback takes any


def paths(names: Sequence[str] = ()) -> list[Path]:
    """The notebooks in order, or the ones whose names start so."""
    found = sorted(NOTEBOOKS.glob("*.ipynb"))
    return [path for path in found if not names or path.stem.startswith(tuple(names))]


@contextmanager
def workspace(folder: Path, weights: Path) -> Iterator[dict[str, str]]:
    """A registry and a local endpoint in `folder`; yields the environment notebooks need."""
    environment = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "FORMLINE_WEIGHTS": str(weights),
        "FORMLINE_MODEL": "formline",
        "FORMLINE_ENDPOINT": "formline",
        "DATABRICKS_TOKEN": TOKEN,
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    with local_endpoint(folder, environment) as url:
        yield {**environment, "DATABRICKS_HOST": url}


@contextmanager
def local_endpoint(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """`python -m serving` on a free port while the block runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "serving", "--port", str(port)]
    with (folder / "serving.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--state-dir", str(folder / "serving")],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_up(f"{url}/health", process)
        yield url
    finally:
        process.terminate()
        process.wait(STOP_S)


def java() -> str | None:
    """Where Java is, which Spark needs."""
    return shutil.which("java")


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310  our own loopback address
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise RuntimeError("the local endpoint did not start; see serving.log")


def run(path: Path, environment: dict[str, str], folder: Path) -> NotebookNode:
    """The executed notebook. Raises nbclient's CellExecutionError at the first cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    before = dict(os.environ)
    os.environ.update(environment)  # the kernel inherits it
    try:
        NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return cleaned(notebook)


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Without standard error and without this run's times."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    return notebook


def main(names: Sequence[str]) -> None:
    weights = build(ROOT / ".cache" / SMALL_MODEL)
    with tempfile.TemporaryDirectory(prefix="formline-notebooks-") as scratch:
        folder = Path(scratch)
        with workspace(folder, weights) as environment:
            for path in paths(names):
                started = time.monotonic()
                nbformat.write(run(path, environment, folder), path)
                print(f"{path.name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
