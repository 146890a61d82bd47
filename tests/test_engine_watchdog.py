"""An engine that hangs without dying: told from one that computes, killed, and rebuilt."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from vllm import SamplingParams

from model import engine_watchdog
from model.completion import Completion
from model.config import ModelConfig
from model.engine import Engine, EngineRequest
from model.engine_watchdog import Watchdog
from model.errors import EngineUnavailable, FormlineError
from tests.test_engine import core_processes, wait_for

TIMEOUT_S = 1.0
STEP_S = 20  # of vLLM's own limit of a step

# Stops a process's main thread only, from outside, for as long as this runs.
HOLD_MAIN_THREAD = """
import ctypes, sys, time
SEIZE, INTERRUPT = 0x4206, 0x4207
ptrace = ctypes.CDLL(None).ptrace
print(ptrace(SEIZE, int(sys.argv[1]), 0, 0) or ptrace(INTERRUPT, int(sys.argv[1]), 0, 0))
sys.stdout.flush()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def engine(small_model_dir: Path, engine_args: dict[str, Any]) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", str(STEP_S))
        args = engine_args | {"max_num_batched_tokens": 8192}
        config = ModelConfig(engine_args=args, hang_timeout_s=TIMEOUT_S)
        running = Engine.acquire(str(small_model_dir), config)
        yield running
        running.shutdown()


def ask(tokens: int, prompt: list[int] | None = None) -> EngineRequest:
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    return EngineRequest(prompt or [1, 2, 3], params)


@pytest.fixture
def hold_main_thread() -> Iterator[Callable[[psutil.Process], None]]:
    tracers: list[subprocess.Popen[str]] = []

    def hold(core: psutil.Process) -> None:
        command = [sys.executable, "-c", HOLD_MAIN_THREAD, str(core.pid)]
        tracer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        tracers.append(tracer)
        assert tracer.stdout is not None
        if tracer.stdout.readline().strip() != "0":
            pytest.skip("needs the right to trace processes")

    yield hold
    for tracer in tracers:
        tracer.kill()
        tracer.communicate()


def meets_a_hang(engine: Engine, hang: Callable[[psutil.Process], None]) -> None:
    """A call during which the engine hangs ends, its answers kept; the next one is answered."""
    (core,) = core_processes(engine)
    family = [core, *core.children(recursive=True)]
    rebuilds = engine.health().rebuilds
    outcomes: dict[int, Completion | FormlineError] = {}
    for position, outcome in engine.generate([ask(2), *[ask(1500)] * 7], deadline_s=None):
        if not outcomes:
            hang(core)
        outcomes[position] = outcome
    assert isinstance(outcomes[0], Completion)
    assert [type(outcomes[p]) for p in range(1, 8)] == [EngineUnavailable] * 7
    assert not engine.health().ready
    assert wait_for(lambda: engine.health().ready, 900)
    ((_, answer),) = engine.generate([ask(2)], deadline_s=None)
    assert isinstance(answer, Completion)
    assert engine.health().rebuilds == rebuilds + 1
    assert not any(process.is_running() for process in family)


def test_a_stopped_process_is_killed_and_the_engine_rebuilt(engine: Engine) -> None:
    meets_a_hang(engine, lambda core: core.send_signal(signal.SIGSTOP))


def test_a_main_loop_that_never_answers_is_killed_and_rebuilt(
    engine: Engine, hold_main_thread: Callable[[psutil.Process], None]
) -> None:
    meets_a_hang(engine, hold_main_thread)


def test_a_step_may_take_longer_than_the_timeout(engine: Engine) -> None:
    """A prefill of 8,000 tokens in one step."""
    rebuilds = engine.health().rebuilds
    rows = [ask(1, [row, *range(100, 2099)]) for row in range(4)]
    began = time.monotonic()
    outcomes = dict(engine.generate(rows, deadline_s=None))
    if time.monotonic() - began < 2 * TIMEOUT_S:
        pytest.skip("this machine is too fast for a long step")
    assert all(isinstance(outcome, Completion) for outcome in outcomes.values())
    assert (engine.health().ready, engine.health().rebuilds) == (True, rebuilds)


def test_an_idle_engine_is_left_alone_until_one_of_its_processes_is_stopped(
    engine: Engine,
) -> None:
    rebuilds = engine.health().rebuilds
    time.sleep(3 * TIMEOUT_S)
    assert (engine.health().ready, engine.health().rebuilds) == (True, rebuilds)
    (core,) = core_processes(engine)
    (worker,) = (process for process in core.children() if "Worker" in process.name())
    worker.send_signal(signal.SIGSTOP)
    assert wait_for(lambda: engine.health().rebuilds == rebuilds + 1, 900)


class FakeEngine:
    """FAKE: stands for an AsyncLLM that answers, or not, as the test says."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers

    async def is_paused(self) -> bool:
        if not self.answers:
            await asyncio.Event().wait()
        return False


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock's time, to be set."""
    now = [100.0]
    monkeypatch.setattr(engine_watchdog.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(engine_watchdog, "longest_step_s", lambda: 10.0)
    return now


def looks(watchdog: Watchdog, engine: FakeEngine, seconds: list[float], total: float) -> list[str]:
    """What the watchdog says in `total` seconds of looking, each look half a second."""

    async def look() -> list[str]:
        said = []
        for _ in range(int(total * 2)):
            seconds[0] += 0.5
            said.append(watchdog.look(engine, []))  # type: ignore[arg-type]
            await asyncio.sleep(0)
        watchdog.reset()
        return [text for text in said if text]

    watchdog.reset()
    return asyncio.run(look())


def test_silence_counts_only_beyond_the_longest_step(seconds: list[float]) -> None:
    watchdog, silent = Watchdog(5.0), FakeEngine(answers=False)
    assert looks(watchdog, silent, seconds, 16) == []
    assert "not answered for 15 s" in looks(watchdog, silent, seconds, 19)[0]
    assert looks(watchdog, FakeEngine(answers=True), seconds, 100) == []
    assert looks(Watchdog(None), silent, seconds, 100) == []


def test_time_in_which_this_process_was_stopped_does_not_count(seconds: list[float]) -> None:
    watchdog, silent = Watchdog(5.0), FakeEngine(answers=False)

    async def scenario() -> str | None:
        watchdog.reset()
        for _ in range(10):
            seconds[0] += 0.5
            assert watchdog.look(silent, []) is None  # type: ignore[arg-type]
            await asyncio.sleep(0)
        seconds[0] += 3600.0
        said = watchdog.look(silent, [])  # type: ignore[arg-type]
        watchdog.reset()
        return said

    assert asyncio.run(scenario()) is None
