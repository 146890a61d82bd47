"""Where a Spark executor's workers meet its engine: the parts that need no Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model.errors import EngineUnavailable
from model.executor.identity import Process, current_task
from model.executor.room import Lease, Room, locked_file, rooms_root
from scoring.spark_task import SparkTask


def test_a_room_is_private_and_leases_travel_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    monkeypatch.setenv("FORMLINE_EXECUTOR_DIR", str(open_to_all))
    with pytest.raises(EngineUnavailable, match="0700"):
        rooms_root()
    lease = Lease("/models/m", {"a": [1]}, Process(7, 8), ("0", "1"))
    assert Lease.from_json(lease.to_json()) == lease


def test_a_room_without_a_host_says_so(tmp_path: Path) -> None:
    room = Room(tmp_path)
    assert room.connect() is None
    assert not room.has_host()
    with locked_file(tmp_path / "host.lock"):
        assert room.has_host()


def test_a_process_that_is_gone_is_not_alive() -> None:
    here = Process(os.getpid(), 0)
    assert not here.alive()  # another start time: another process


def test_empty_partitions_start_no_engine() -> None:
    task = SparkTask("models:/x/1", "", "", {}, {"prompt": "prompt"}, None, None, "", 10)
    assert list(task(iter([]))) == []


def test_outside_spark_there_is_no_task() -> None:
    assert current_task() is None


def test_a_host_that_cannot_start_shows_why(tmp_path: Path) -> None:
    lease = Lease(str(tmp_path / "no-model-here"), {}, Process(os.getpid(), 0), ())
    with pytest.raises(EngineUnavailable, match="no-model-here"):
        Room(tmp_path).connect_or_start(lease, timeout_s=120)
