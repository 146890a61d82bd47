"""An engine that hangs without dying: told from one that computes, killed, and rebuilt."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

TIMEOUT_S = 1.0
STEP_S = 30  # of vLLM's own limit of a step

# Stops a process's main thread only, from outside, until that process is killed.
HOLD_MAIN_THREAD = """
import ctypes, os, sys
SEIZE, INTERRUPT, ANY_THREAD = 0x4206, 0x4207, 0x40000000
pid, ptrace = int(sys.argv[1]), ctypes.CDLL(None).ptrace
print(ptrace(SEIZE, pid, 0, 0) or ptrace(INTERRUPT, pid, 0, 0), flush=True)
while os.WIFSTOPPED(os.waitpid(pid, ANY_THREAD)[1]):
    continue
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


@pytest.mark.slow
def test_a_stopped_process_is_killed_and_the_engine_rebuilt(engine: Engine) -> None:
    meets_a_hang(engine, lambda core: core.send_signal(signal.SIGSTOP))


@pytest.mark.slow
def test_a_main_loop_that_never_answers_is_killed_and_rebuilt(
    engine: Engine, hold_main_thread: Callable[[psutil.Process], None]
) -> None:
    meets_a_hang(engine, hold_main_thread)


@pytest.mark.slow
def test_a_step_may_take_longer_than_the_timeout(engine: Engine) -> None:
    """A prefill of 2,000 tokens in one step."""
    rebuilds = engine.health().rebuilds
    rows = [ask(1, [*range(100, 2100)])]
    began = time.monotonic()
    outcomes = dict(engine.generate(rows, deadline_s=None))
    if time.monotonic() - began < 2 * TIMEOUT_S:
        pytest.skip("this machine is too fast for a long step")
    assert all(isinstance(outcome, Completion) for outcome in outcomes.values())
    assert (engine.health().ready, engine.health().rebuilds) == (True, rebuilds)


@pytest.mark.slow
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


class Clock:
    """A time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "engine" not in request.fixturenames:
        monkeypatch.setattr(engine_watchdog, "longest_step_s", lambda: 10.0)


def looks(timeout_s: float | None, engine: FakeEngine, *passed: float) -> list[str]:
    """What a watchdog says when it looks again after each of these seconds."""
    clock = Clock()
    watchdog = Watchdog(timeout_s, clock)

    async def look() -> list[str]:
        watchdog.reset()
        said = []
        for seconds in passed:
            clock.now += seconds
            said.append(watchdog.look(cast("AsyncLLM", engine), []))
            await asyncio.sleep(0)
        watchdog.reset()
        return [text for text in said if text]

    return asyncio.run(look())


def test_silence_counts_only_beyond_the_longest_step() -> None:
    silent = FakeEngine(answers=False)
    assert looks(5.0, silent, *[0.5] * 32) == []
    assert "not answered for 15 s" in looks(5.0, silent, *[0.5] * 38)[0]
    assert looks(5.0, FakeEngine(answers=True), *[0.5] * 200) == []
    assert looks(None, silent, *[0.5] * 200) == []


def test_time_in_which_this_process_was_stopped_does_not_count() -> None:
    assert looks(5.0, FakeEngine(answers=False), *[0.5] * 10, 3600.0, 0.5) == []
