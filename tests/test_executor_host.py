"""The process that answers an executor's workers, without its model: who is served, and how."""

from __future__ import annotations

import os
import time
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import Any

import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ErrorCode

from model.executor.host import Workers, pin_to_cores, serve, take, wait_for_end
from model.executor.identity import Process

FRAME = pd.DataFrame({"prompt": ["a", "b"]})


class FakeModel:
    """Stands for a model: upper case, or the fault that `params` names."""

    def predict(self, frame: pd.DataFrame, params: dict[str, Any]) -> pd.DataFrame:
        if params.get("fault") == "busy":
            raise MlflowException("wait", error_code=ErrorCode.Value("TEMPORARILY_UNAVAILABLE"))
        if params.get("fault"):
            raise KeyError(params["fault"])
        return frame.assign(output=frame["prompt"].str.upper())


def test_a_worker_is_answered_whatever_its_calls_meet_and_is_gone_when_it_leaves() -> None:
    workers = Workers()
    here, there = Pipe()
    workers.came()
    serving = Thread(target=serve, args=(there, FakeModel(), workers))
    serving.start()
    here.send((FRAME, {}))
    kind, frame = here.recv()
    assert (kind, frame["output"].tolist()) == ("frame", ["A", "B"])
    here.send((FRAME, {"fault": "busy"}))
    assert here.recv() == ("error", ("TEMPORARILY_UNAVAILABLE", "wait"))
    here.send((FRAME, {"fault": "x"}))
    assert here.recv() == ("error", ("INTERNAL_ERROR", "KeyError: 'x'"))
    assert workers.idle_s() == 0
    here.close()
    serving.join(10)
    time.sleep(0.01)
    assert workers.idle_s() > 0


def test_a_message_that_cannot_be_read_ends_the_worker_and_nothing_else() -> None:
    workers = Workers()
    here, there = Pipe()
    workers.came()
    here.send_bytes(b"not a pickle")
    with pytest.raises(Exception, match=r"pickle|invalid"):
        serve(there, FakeModel(), workers)
    assert there.closed
    time.sleep(0.01)
    assert workers.idle_s() > 0


def test_the_host_ends_with_its_executor() -> None:
    gone = Process(os.getpid(), 0)  # another start time: another process
    wait_for_end(None, gone, Workers())


def test_the_host_ends_when_nobody_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORMLINE_EXECUTOR_IDLE_S", "0")
    here = Process(os.getpid(), started_at(os.getpid()))
    assert here.alive()
    wait_for_end(None, here, Workers())


def test_hosts_take_cores_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first core is another host's: the next one is taken, and said to the engine."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    tmp_path.chmod(0o700)
    monkeypatch.setenv("FORMLINE_EXECUTOR_DIR", str(tmp_path))
    monkeypatch.setenv("FORMLINE_EXECUTOR_CORES", "1")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "")
    before = os.sched_getaffinity(0)
    other = take(tmp_path / "cores-0.lock")
    try:
        pin_to_cores()
        assert os.sched_getaffinity(0) == {sorted(before)[1]}
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == str(sorted(before)[1])
    finally:
        os.sched_setaffinity(0, before)
        assert other is not None
        os.close(other)


def started_at(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(text.rpartition(")")[2].split()[19])
