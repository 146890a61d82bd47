"""The process that holds an executor's model and answers its workers.

    python -m model.executor.host ROOM LEASE

It ends when the executor's JVM does, or after FORMLINE_EXECUTOR_IDLE_S seconds (600) without a
worker. FORMLINE_EXECUTOR_CORES=K gives each host of a machine K cores of its own: on CPU, several
executors on one machine would otherwise all take the same ones.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import sys
import time
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from mlflow.exceptions import MlflowException

from model.executor.identity import Process
from model.executor.room import OPEN_FLAGS, Lease, Room, rooms_root

IDLE_VARIABLE = "FORMLINE_EXECUTOR_IDLE_S"
CORES_VARIABLE = "FORMLINE_EXECUTOR_CORES"
IDLE_S = 600.0
LOOK_S = 1.0
ALREADY_HOSTED = 75

_log = logging.getLogger("formline.executor")


class Workers:
    """How many workers are connected, and since when none has been. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connected = 0
        self._since = time.monotonic()

    def came(self) -> None:
        with self._lock:
            self._connected += 1

    def left(self) -> None:
        with self._lock:
            self._connected -= 1
            self._since = time.monotonic()

    def idle_s(self) -> float:
        with self._lock:
            return 0.0 if self._connected else time.monotonic() - self._since


def main(room_path: str, lease_text: str) -> int:
    """Loads the model, then answers until the executor ends."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    room, lease = Room(Path(room_path)), Lease.from_json(lease_text)
    if take(room.path / "host.lock") is None:
        return ALREADY_HOSTED
    with (room.path / "starts").open("a", encoding="utf-8") as starts:
        starts.write(f"{os.getpid()} {lease.executor.pid}\n")
    executor_end = watch(lease.executor)
    pin_to_cores()
    model = load(lease)
    workers = Workers()
    Path(room.socket).unlink(missing_ok=True)
    listener = Listener(room.socket, "AF_UNIX", authkey=room.key(), backlog=64)
    Thread(target=accept, args=(listener, model, workers), daemon=True).start()
    _log.info("ready")
    wait_for_end(executor_end, lease.executor, workers)
    listener.close()
    shut_down()
    return 0


def take(path: Path) -> int | None:
    """An open lock, held until this process ends, or None when another process holds it."""
    handle = os.open(path, OPEN_FLAGS, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def watch(executor: Process) -> int | None:
    """A handle that becomes readable when the executor ends, where the system has such handles."""
    try:
        return os.pidfd_open(executor.pid)
    except (OSError, AttributeError):
        return None


def wait_for_end(executor_end: int | None, executor: Process, workers: Workers) -> None:
    """Until the executor is gone or nobody has needed the model for long."""
    limit = float(os.environ.get(IDLE_VARIABLE, IDLE_S))
    while executor.alive() and workers.idle_s() < limit:
        if executor_end is None:
            time.sleep(LOOK_S)
        else:
            select.select([executor_end], [], [], LOOK_S)
    _log.info("the executor ended" if not executor.alive() else "idle for %s s", limit)


def pin_to_cores() -> None:
    """Takes the first free set of cores on this machine, if asked to."""
    wanted = int(os.environ.get(CORES_VARIABLE, "0"))
    cores = sorted(os.sched_getaffinity(0))
    for slot in range(len(cores) // wanted if wanted else 0):
        if take(rooms_root() / f"cores-{slot}.lock") is not None:
            mine = cores[slot * wanted : (slot + 1) * wanted]
            os.sched_setaffinity(0, mine)
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, mine))
            return


def load(lease: Lease) -> Any:
    import mlflow

    return mlflow.pyfunc.load_model(lease.model_path, model_config=lease.model_config)


def accept(listener: Listener, model: Any, workers: Workers) -> None:
    """Gives each worker that connects a thread of its own."""
    while True:
        try:
            connection = listener.accept()
        except (OSError, EOFError, AuthenticationError) as error:
            _log.info("a connection failed: %s", error)  # one handshake: the next may do better
            time.sleep(LOOK_S)
            continue
        workers.came()
        Thread(target=serve, args=(connection, model, workers), daemon=True).start()


def serve(connection: Connection[Any, Any], model: Any, workers: Workers) -> None:
    """Answers one worker's calls until it leaves."""
    try:
        with connection, suppress(EOFError, ConnectionError):
            while True:
                frame, params = connection.recv()
                connection.send(answer(model, frame, params))
    finally:
        workers.left()


def answer(model: Any, frame: Any, params: Any) -> tuple[str, Any]:
    """("frame", answers), or ("error", (error code, message))."""
    try:
        return "frame", model.predict(frame, params=params)
    except MlflowException as error:
        return "error", (error.error_code, error.message)
    except Exception as error:  # noqa: BLE001  the worker gets it, and the host lives on
        _log.exception("a call failed")
        return "error", ("INTERNAL_ERROR", f"{type(error).__name__}: {error}")


def shut_down() -> None:
    from model.engine import shutdown_all

    shutdown_all()


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    logging.shutdown()
    os._exit(code)  # threads may still wait for an engine that is gone
