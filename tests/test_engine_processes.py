"""What is left of an engine's processes when they are ended: nothing, shared memory included."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import psutil
import pytest

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
