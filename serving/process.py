"""One operating-system process that holds one loaded model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

PROJECT = Path(__file__).resolve().parent.parent
NO_TIMEOUT = httpx.Timeout(None)  # callers bound their calls themselves
FAILURE_PREFIX = "load failed: "
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Launch:
    """What a process needs to start. It listens on `socket`, which no other user can open."""

    model_uri: str
    socket: Path
    log: Path
    execution_s: float
    environment: Mapping[str, str]
    log_bytes: int


class EntityProcess:
    """A started process. It leads a process group, so that nothing it started outlives it.

    It holds the reading end of a pipe from us: when we die, however we die, it reads the end of
    the file and stops by itself.
    """

    def __init__(self, launch: Launch, process: asyncio.subprocess.Process, log_start: int) -> None:
        self.launch, self._process = launch, process
        self._log_start = log_start
        transport = httpx.AsyncHTTPTransport(
            uds=str(launch.socket),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
        )
        self.client = httpx.AsyncClient(
            transport=transport, base_url="http://entity", timeout=NO_TIMEOUT
        )

    @classmethod
    async def start(cls, launch: Launch) -> EntityProcess:
        """Start it; it is not ready yet."""
        launch.socket.unlink(missing_ok=True)
        with open_log(launch.log, launch.log_bytes) as log:
            log_start = os.fstat(log).st_size
            process = await asyncio.create_subprocess_exec(
                *command(launch),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **launch.environment},
                cwd=PROJECT,
                start_new_session=True,
            )
        return cls(launch, process, log_start)

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Return when it has ended, however it ended."""
        return await self._process.wait()

    async def answers(self, timeout_s: float) -> bool:
        """Whether it answers its health route with 200 within the time."""
        try:
            reply = await self.client.get("/health", timeout=timeout_s)
        except httpx.HTTPError:
            return False
        return reply.status_code == 200

    async def wait_ready(self, limit_s: float) -> str | None:
        """None once it answers; otherwise why it never will."""
        try:
            async with asyncio.timeout(limit_s):
                while self.returncode is None:
                    if self.launch.socket.exists() and await self.answers(timeout_s=30.0):
                        return None
                    await asyncio.sleep(0.1)
        except TimeoutError:
            return f"not ready after {limit_s:.0f} s; see its log"
        return self.failure()

    def failure(self) -> str:
        """The reason it wrote before it ended, or else how it ended."""
        return failure_of(self.launch.log, self._log_start, self.returncode or 0)

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, then make its whole group end. Returns when it is gone."""
        await self.client.aclose()
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            self._signal_group(signal.SIGKILL)
            await self._process.wait()
        self._signal_group(signal.SIGKILL)
        self.launch.socket.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            self._process.send_signal(number)

    def _signal_group(self, number: signal.Signals) -> None:
        """Reach what the process left behind; a group without members is no error."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def command(launch: Launch) -> list[str]:
    """The command line of the process."""
    options = {
        "--model-uri": launch.model_uri,
        "--socket": str(launch.socket),
        "--execution-limit": str(launch.execution_s),
    }
    flags = [word for pair in options.items() for word in pair]
    return [sys.executable, "-m", "serving.entity", *flags, "--watch-parent"]


@contextlib.contextmanager
def open_log(path: Path, max_bytes: int) -> Iterator[int]:
    """Open a log for appending; one grown over `max_bytes` starts anew and the old one is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > max_bytes:
        path.replace(path.with_suffix(".log.1"))
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def tail(path: Path, max_bytes: int = TAIL_BYTES) -> str:
    """The end of a log, from the start of a line."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - max_bytes))
        text = log.read().decode("utf-8", "replace")
    return text if size <= max_bytes else text.partition("\n")[2]


def failure_of(log: Path, start: int, returncode: int) -> str:
    """The failure written at the end of `log`, from byte `start` on, or what the status says."""
    for line in reversed(tail(log, max(0, log.stat().st_size - start)).splitlines()):
        if line.startswith(FAILURE_PREFIX):
            return line.removeprefix(FAILURE_PREFIX)[:1000]
    if returncode < 0:
        name = signal.Signals(-returncode).name
        return f"killed by {name}" + (
            "; out of memory is the usual cause" if name == "SIGKILL" else ""
        )
    return f"ended with exit status {returncode}; see its log"
