"""MLflow's own scoring server over a model version, as a context manager."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import requests

SERVE = ("-m", "mlflow", "models", "serve", "--env-manager", "local", "--host", "127.0.0.1")
START_TIMEOUT_S = 600
STOP_TIMEOUT_S = 30
POLL_S = 0.5
LOG_TAIL_CHARS = 4000


@contextlib.contextmanager
def serve(model_uri: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Runs `mlflow models serve` on a free port; yields its base URL, and ends it afterwards.

    RuntimeError, with the end of the server's log, when it does not come up.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.NamedTemporaryFile(prefix="formline-serve-", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, *SERVE, "--port", str(port), "--model-uri", model_uri],
            env={**os.environ, "PATH": search_path(), **(environment or {})},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until_ready(url, process, Path(log.name))
            yield url
        finally:
            stop(process)


def search_path() -> str:
    """PATH with this interpreter's programs first: MLflow starts `uvicorn` by its bare name."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def free_port() -> int:
    """A TCP port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns once `/ping` answers; RuntimeError when the server ended or took too long."""
    limit = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < limit and process.poll() is None:
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"{url}/ping", timeout=5).ok:
                return
        time.sleep(POLL_S)
    tail = log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARS:]
    raise RuntimeError(f"the scoring server did not come up; its log ends:\n{tail}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the server and all that it started: asked first, forced after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
            if not group_alive(process.pid):
                return


def group_alive(group: int) -> bool:
    """Whether any process of a process group is left, after a short grace for the last ones."""
    for _ in range(20):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(POLL_S)
    return True
