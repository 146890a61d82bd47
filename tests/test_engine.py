"""The real engine on the real small model: sharing, limits, and faults made to happen."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from model.completion import Chunk, Completion
from model.config import ModelConfig
from model.engine import Engine, EngineRequest, State
from model.errors import (
    DeadlineExceeded,
    EngineOverloaded,
    EngineUnavailable,
    FormlineError,
    RowError,
)
from model.metrics import metrics_text

LONG = 1000  # tokens that no test waits for


@pytest.fixture(scope="module")
def engine(small_model_dir: Path, engine_args: dict[str, Any]) -> Iterator[Engine]:
    async def acquire() -> Engine:  # as under a web server: an event loop runs in this thread
        return Engine.acquire(str(small_model_dir), ModelConfig(engine_args=engine_args))

    running = asyncio.run(acquire())
    yield running
    running.shutdown()


@pytest.fixture
def ask(engine: Engine) -> Callable[..., EngineRequest]:
    def make(prompt: str = "The capital of France is", tokens: int = 5, **params: Any) -> Any:
        settings = {"temperature": 0.0, "max_tokens": tokens, "min_tokens": tokens} | params
        return EngineRequest(engine.tokenizer.encode(prompt), SamplingParams(**settings))

    return make


def choosing(text: str) -> dict[str, Any]:
    """Sampling params under which the only answer is `text`."""
    constraint = StructuredOutputsParams(json=json.dumps({"enum": [text]}))
    return {"min_tokens": 0, "structured_outputs": constraint}


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    ends_at = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends_at:
        time.sleep(0.05)
    return condition()


def core_processes(engine: Engine) -> list[psutil.Process]:
    """The EngineCore processes of one engine: other tests may have engines of their own."""
    manager = engine._supervisor.llm.engine_core.resources.engine_manager
    pids = {process.pid for process in manager.processes}
    return [p for p in psutil.Process().children() if p.pid in pids]


def unfinished(engine: Engine) -> int:
    """Requests that vLLM itself still has."""
    return int(engine._supervisor.llm.output_processor.get_num_unfinished_requests())


def in_background(rows: Iterator[Any]) -> tuple[threading.Thread, list[Any]]:
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.extend(rows))
    thread.start()
    return thread, outcomes


def test_all_callers_share_one_engine(
    engine: Engine, small_model_dir: Path, engine_args: dict[str, Any]
) -> None:
    config = ModelConfig(engine_args=engine_args, chat_template="chatml")
    assert Engine.acquire(f"{small_model_dir}/", config) is engine
    assert engine.max_model_len == engine_args["max_model_len"]
    assert engine.health().ready


def test_rows_of_many_threads_get_their_own_answers(
    engine: Engine, ask: Callable[..., EngineRequest]
) -> None:
    answers: dict[str, str] = {}

    def caller(name: str) -> None:
        rows = [ask(tokens=40, **choosing(f"{name}-{at}")) for at in range(4)]
        for position, outcome in engine.generate(rows, deadline_s=None):
            assert isinstance(outcome, Completion), outcome
            answers[f"{name}-{position}"] = json.loads(outcome.choices[0].text)

    threads = [threading.Thread(target=caller, args=(f"caller{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 32
    assert all(name == answer for name, answer in answers.items())


def test_one_bad_row_is_one_rows_error(engine: Engine, ask: Callable[..., EngineRequest]) -> None:
    too_long = EngineRequest([1] * 5000, SamplingParams(max_tokens=5))
    no_such_token = EngineRequest([10**9], SamplingParams(max_tokens=5))
    rows: list[Any] = [ask(), too_long, RowError("not valid"), no_such_token, ask()]
    outcomes = dict(engine.generate(rows, deadline_s=None))
    assert [isinstance(outcomes[p], RowError) for p in range(5)] == [False, True, True, True, False]
    assert outcomes[0].choices[0].text == outcomes[4].choices[0].text  # type: ignore[union-attr]


def test_at_the_deadline_finished_rows_are_kept_and_the_rest_aborted(
    engine: Engine, ask: Callable[..., EngineRequest]
) -> None:
    rows = [ask(tokens=1), *(ask(tokens=LONG) for _ in range(3))]
    first = dict(engine.generate(rows[:1], deadline_s=None))
    outcomes = dict(engine.generate([*rows[1:], RowError("bad")], deadline_s=1.0))
    assert isinstance(first[0], Completion)
    assert [type(outcomes[p]) for p in range(3)] == [DeadlineExceeded] * 3
    assert isinstance(outcomes[3], RowError)
    assert wait_for(lambda: unfinished(engine) == 0)


def test_a_short_call_is_not_stuck_behind_a_long_one(
    engine: Engine, ask: Callable[..., EngineRequest]
) -> None:
    count = engine._window.slots + 16
    long, done = in_background(
        engine.generate((ask(tokens=4) for _ in range(count)), deadline_s=None)
    )
    assert wait_for(lambda: engine._window.in_flight == engine._window.slots)
    (answer,) = engine.generate([ask(tokens=1)], deadline_s=None)
    assert isinstance(answer[1], Completion)
    assert len(done) < count
    long.join()
    assert sorted(p for p, _ in done) == list(range(count))


def test_a_full_queue_refuses_new_calls(engine: Engine, ask: Callable[..., EngineRequest]) -> None:
    rows = engine.generate([ask(tokens=1), ask(tokens=LONG)], deadline_s=None, total=2)
    next(rows)
    with pytest.raises(EngineOverloaded, match="try again"):
        next(engine.generate([ask()], deadline_s=None, max_waiting_rows=1))
    rows.close()
    assert wait_for(lambda: unfinished(engine) == 0), "a caller that left has its rows aborted"
    assert list(engine.generate([ask()], deadline_s=None, max_waiting_rows=1))


def test_streamed_pieces_are_the_answer(engine: Engine, ask: Callable[..., EngineRequest]) -> None:
    rows: list[Any] = [ask(tokens=12), ask("One, two,", tokens=12), RowError("bad")]
    whole = dict(engine.generate(rows, deadline_s=None))
    pieces: dict[int, str] = {0: "", 1: ""}
    ends: dict[int, Completion | FormlineError] = {}
    for position, event in engine.stream(rows, deadline_s=None):
        if isinstance(event, Chunk):
            pieces[position] += event.text
        else:
            ends[position] = event
    assert isinstance(ends[2], RowError)
    for position, text in pieces.items():
        assert ends[position] == whole[position]
        assert text == ends[position].choices[0].text  # type: ignore[union-attr]


def test_closing_a_stream_aborts_its_row(engine: Engine, ask: Callable[..., EngineRequest]) -> None:
    stream = engine.stream([ask(tokens=LONG)], deadline_s=None)
    assert isinstance(next(stream)[1], Chunk)
    stream.close()
    assert wait_for(lambda: unfinished(engine) == 0)


def test_a_shared_prefix_is_computed_once(
    engine: Engine, ask: Callable[..., EngineRequest]
) -> None:
    prefix = "You grade documents with care. " * 60
    for question in ("first?", "second?"):
        ((_, outcome),) = engine.generate([ask(prefix + question)], deadline_s=None)
    assert isinstance(outcome, Completion)
    assert outcome.cached_tokens > outcome.prompt_tokens / 2


def test_metrics_are_vllms_and_ours(engine: Engine, ask: Callable[..., EngineRequest]) -> None:
    rows: list[Any] = [ask(), RowError("bad"), ask(**choosing("same")), ask(**choosing("same"))]
    list(engine.generate(rows, deadline_s=None))
    text = metrics_text().decode()
    for name in (
        'formline_rows_total{outcome="length"}',
        'formline_rows_total{outcome="INVALID_ROW"}',
        'formline_tokens_total{kind="cached"}',
        'formline_call_seconds_count{outcome="done"}',
        "formline_engine_up{engine=",
        "formline_rows_in_flight",
        "formline_rows_waiting",
        "formline_constraint_compile_seconds_count",
        "formline_constraint_mask_seconds_count",
        'formline_constraint_cache_total{outcome="hit"}',
        "vllm:prefix_cache_hits_total",
        "vllm:generation_tokens_total",
    ):
        assert name in text


def test_the_dashboard_asks_for_metrics_that_exist(
    engine: Engine, ask: Callable[..., EngineRequest]
) -> None:
    list(engine.generate([ask(**choosing("any"))], deadline_s=None))
    text = metrics_text().decode()
    dashboard = (Path(__file__).parent.parent / "dashboards" / "formline.json").read_text()
    names = set(re.findall(r"(?:formline_|vllm:)\w+", dashboard))
    assert len(names) > 10
    assert [n for n in names if f"# HELP {_family_name(n)} " not in text] == []


def _family_name(sample: str) -> str:
    """The metric a sample belongs to; a counter's family keeps its _total in this format."""
    return re.sub(r"_(bucket|count|sum)$", "", sample)


@pytest.mark.parametrize("log_content", [False, True])
def test_logs_hold_no_content_unless_switched_on(
    engine: Engine,
    ask: Callable[..., EngineRequest],
    caplog: pytest.LogCaptureFixture,
    log_content: bool,
) -> None:
    with caplog.at_level(logging.INFO, logger="formline"):
        list(engine.generate([ask("A secret 4711")], deadline_s=None, log_content=log_content))
    events = [json.loads(r.message) for r in caplog.records if r.name == "formline"]
    call = next(e for e in events if e["event"] == "call")
    assert call["outcomes"] == {"length": 1}
    assert call["tokens"]["completion"] == 5
    assert any("4711" in r.message for r in caplog.records) is log_content


def test_a_killed_engine_ends_the_call_and_is_rebuilt(
    engine: Engine, ask: Callable[..., EngineRequest]
) -> None:
    (core,) = core_processes(engine)
    family = [core, *core.children(recursive=True)]
    outcomes: dict[int, Completion | FormlineError] = {}
    rows = [ask(tokens=2), *(ask(tokens=LONG) for _ in range(63))]
    for position, outcome in engine.generate(rows, deadline_s=None):
        if not outcomes:
            os.kill(core.pid, signal.SIGKILL)
        outcomes[position] = outcome
    assert len(outcomes) == 64
    assert isinstance(outcomes[0], Completion)
    assert all(isinstance(outcomes[p], EngineUnavailable) for p in range(1, 64))
    health = engine.health()
    assert (health.state, health.ready, health.alive) == (State.REBUILDING, False, True)
    assert re.search(r'formline_engine_up\{engine="\d+"\} 0\.0', metrics_text().decode())

    assert wait_for(lambda: engine.health().ready, 900)
    ((_, answer),) = engine.generate([ask()], deadline_s=None)
    assert isinstance(answer, Completion)
    assert engine.health().rebuilds == 1
    assert not any(process.is_running() for process in family)
    assert len(core_processes(engine)) == 1
    assert 'formline_engine_rebuilds_total{outcome="done"} 1.0' in metrics_text().decode()
