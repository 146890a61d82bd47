"""What is left of an engine's processes when they are ended: nothing, shared memory included."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import psutil
import pytest

from model import engine_child
from model.engine_processes import claim, end


def _hold(pipe: Connection) -> None:
    """Makes shared memory as vLLM's processes do, and lives until it is killed."""
    segment = SharedMemory(create=True, size=1 << 20)
    pipe.send(segment.name)
    time.sleep(600)


@pytest.mark.parametrize("first", ["running", "killed"])
def test_shared_memory_of_ended_processes_is_freed(first: str) -> None:
    ours, theirs = multiprocessing.Pipe()
    context: Any = multiprocessing.get_context("spawn")
    child = context.Process(target=_hold, args=(theirs,), daemon=True, name="EngineCore-fake")
    child.start()
    segment = Path("/dev/shm") / ours.recv()  # noqa: S108
    claimed = claim()
    assert claimed == {psutil.Process(child.pid)}
    assert segment.exists()
    if first == "killed":  # as vLLM's own shutdown does
        child.kill()
        child.join()
        assert segment.exists()
    end(claimed)
    assert not psutil.pid_exists(child.pid)
    assert not segment.exists()


def _work(pipe: Connection) -> None:
    """A worker that is not ready yet, when vLLM does not watch over its parent."""
    engine_child.install()
    pipe.send(os.getpid())
    time.sleep(600)


def _have_a_worker(pipe: Connection) -> None:
    context: Any = multiprocessing.get_context("spawn")
    context.Process(target=_work, args=(pipe,), name="VllmWorker-0").start()
    time.sleep(600)


def test_a_worker_ends_with_its_engine_process_however_early() -> None:
    ours, theirs = multiprocessing.Pipe()
    context: Any = multiprocessing.get_context("spawn")
    engine = context.Process(target=_have_a_worker, args=(theirs,))
    engine.start()
    worker = psutil.Process(ours.recv())
    engine.kill()
    engine.join()
    worker.wait(60)
    assert not worker.is_running()
