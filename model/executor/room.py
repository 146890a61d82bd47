"""Where the workers of one executor meet the host of one model.

A room is a private folder. Whoever needs the host and finds none starts it, one at a time (a file
lock). The host holds a lock of its own while it lives, so that a worker killed while it waited
never leads to a second host.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from model.errors import EngineUnavailable
from model.executor.identity import Executor, Process

ROOT_VARIABLE = "FORMLINE_EXECUTOR_DIR"
LONGEST_ROOT = 60  # a Unix socket's whole path has 107 bytes
POLL_S = 0.2
LOG_TAIL = 2_000
OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


@dataclass(frozen=True)
class Lease:
    """What the host needs to know: the model's folder, its config, and with whom it ends."""

    model_path: str
    model_config: dict[str, Any]
    executor: Process
    gpus: tuple[str, ...]

    def to_json(self) -> str:
        fields = {"model_path": self.model_path, "model_config": self.model_config}
        executor = [self.executor.pid, self.executor.started]
        return json.dumps({**fields, "executor": executor, "gpus": self.gpus})

    @classmethod
    def from_json(cls, text: str) -> Lease:
        fields = json.loads(text)
        executor = Process(*fields["executor"])
        return cls(fields["model_path"], fields["model_config"], executor, tuple(fields["gpus"]))


class Room:
    """The meeting place of one executor, one model and one config."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = str(path / "s")

    @classmethod
    def of(cls, executor: Executor, model: str, config: dict[str, Any]) -> Room:
        """`model` identifies the model version, wherever its files lie."""
        key = json.dumps([executor.process.pid, executor.process.started, executor.gpus, model])
        text = key + json.dumps(config, sort_keys=True)
        name = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        path = rooms_root() / name
        path.mkdir(mode=0o700, exist_ok=True)
        return cls(path)

    def key(self) -> bytes:
        """The secret that workers and host share; made by whoever comes first."""
        path = self.path / "key"
        with self.locked("key.lock"):
            if not path.exists():
                path.touch(mode=0o600)
                path.write_bytes(secrets.token_bytes(32))
            return path.read_bytes()

    def connect(self) -> Connection[Any, Any] | None:
        """A connection to the host, or None when there is none that listens."""
        try:
            return Client(self.socket, "AF_UNIX", authkey=self.key())
        except (FileNotFoundError, ConnectionError, AuthenticationError, EOFError):
            return None

    def connect_or_start(self, lease: Lease, timeout_s: float) -> Connection[Any, Any]:
        """A connection to the host, which is started if nobody has. Seconds to minutes.

        Raises EngineUnavailable, with the end of the host's log, when it cannot start.
        """
        found = self.connect()
        if found is not None:
            return found
        with self.locked("start.lock"):
            found = self.connect()
            return found if found is not None else self._start(lease, timeout_s)

    def _start(self, lease: Lease, timeout_s: float) -> Connection[Any, Any]:
        child = None if self.has_host() else self._spawn(lease)
        give_up = time.monotonic() + timeout_s
        while time.monotonic() < give_up:
            found = self.connect()
            if found is not None:
                return found
            if child is not None and child.poll() is not None and not self.has_host():
                break
            time.sleep(POLL_S)
        raise EngineUnavailable(f"the executor's engine did not start: {self._log_tail()}")

    def _spawn(self, lease: Lease) -> subprocess.Popen[bytes]:
        code = str(Path(__file__).resolve().parents[2])
        paths = [code, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        if lease.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(lease.gpus)
        with (self.path / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "model.executor.host", str(self.path), lease.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def has_host(self) -> bool:
        """Whether a host lives, listening or still loading."""
        handle = os.open(self.path / "host.lock", OPEN_FLAGS, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(handle)

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        with locked_file(self.path / name):
            yield

    def _log_tail(self) -> str:
        log = self.path / "log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return text[-LOG_TAIL:].strip() or "it said nothing"


def rooms_root() -> Path:
    """This user's private folder for rooms."""
    given = os.environ.get(ROOT_VARIABLE)
    parent = tempfile.gettempdir()
    short = parent if len(parent) <= LONGEST_ROOT else "/tmp"  # noqa: S108  owner and mode are checked
    root = Path(given) if given else Path(short) / f"formline-{os.getuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = root.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise EngineUnavailable(
            f"{root} must belong to this user alone (mode 0700); set {ROOT_VARIABLE} to a folder "
            "that does"
        )
    return root


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Holds an exclusive lock, waiting for it."""
    handle = os.open(path, OPEN_FLAGS, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
