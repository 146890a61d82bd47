"""The local endpoint, as a context manager: where Databricks' clients look while it runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import requests

from scripts.scoring_server import POLL_S, START_TIMEOUT_S, free_port, stop

ANY_TOKEN = "any"  # noqa: S105 - on loopback the server asks for none, the clients for some


@contextlib.contextmanager
def local_endpoint(state_dir: Path, tracking_uri: str) -> Iterator[str]:
    """Runs `python -m serving` on a free port; yields its URL, and ends it afterwards.

    Meanwhile DATABRICKS_HOST and DATABRICKS_TOKEN point at it. RuntimeError when it does not
    come up; its own log goes where this process' output goes.
    """
    url = f"http://127.0.0.1:{(port := free_port())}"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "serving", "--port", str(port)),
            *("--state-dir", str(state_dir), "--tracking-uri", tracking_uri),
        ],
        start_new_session=True,
    )
    try:
        wait_until_up(url, process)
        with environment(DATABRICKS_HOST=url, DATABRICKS_TOKEN=ANY_TOKEN):
            yield url
    finally:
        stop(process)


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    """Returns once `/health` answers."""
    limit = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < limit and process.poll() is None:
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"{url}/health", timeout=5).ok:
                return
        time.sleep(POLL_S)
    raise RuntimeError("the local endpoint did not come up")


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Sets environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
