"""The engine of this process: rows in, completions out, for any number of callers at once.

    engine = Engine.acquire(weights, config)
    for position, outcome in engine.generate(requests, deadline_s=50):
        ...

One AsyncLLM a process for each pair of weights and config, on an event loop of its own thread; the
rows of all callers share its continuous batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack, cast

from model.admission import Admission
from model.call_record import CallRecord
from model.caller import current_caller
from model.completion import Choice, Chunk, Completion, EngineRequest
from model.config import ModelConfig
from model.engine_call import Answer, Call, Event, Request
from model.engine_loop import EngineLoop
from model.engine_registry import Registry, weights_identity
from model.engine_watchdog import Watchdog
from model.errors import FormlineError
from model.metrics import Gauges
from model.supervisor import Health, State, Supervisor
from model.window import Window

__all__ = [
    "Choice",
    "Chunk",
    "Completion",
    "Engine",
    "EngineRequest",
    "Health",
    "State",
    "shutdown_all",
]

REBUILD_WAIT_S = 45.0


class CallLimits(TypedDict, total=False):
    """What a call may set.

    `deadline_s`: seconds; rows not done by then come back as DeadlineExceeded. `total`: the number
    of requests, which saves rendering those that can no longer be answered. `max_waiting_rows`:
    refuse the call while others have so many unanswered rows. `log_content`: write prompts and
    answers to the log.
    """

    deadline_s: Required[float | None]
    total: int | None
    max_waiting_rows: int | None
    log_content: bool


class Engine:
    """A running engine. Thread-safe; made by `acquire` only."""

    def __init__(self, weights: str, config: ModelConfig) -> None:
        from model.engine_build import build_engine
        from model.engine_rows import EngineRows

        self._copies = [weights]
        self._loop = EngineLoop("formline-engine")
        self._supervisor = Supervisor(
            self._loop,
            lambda: build_engine(self._weights(), config.engine_kwargs()),
            Watchdog(config.hang_timeout_s),
            max_failed_rebuilds=config.rebuild_attempts,
        )
        self._window = Window()
        self._admission = Admission()
        self._rows = EngineRows(self._loop, self._supervisor, self._window)

    @classmethod
    def acquire(cls, weights: str, config: ModelConfig) -> Engine:
        """The process's engine for `weights` and `config`, started if it does not run yet.

        Blocks until the engine is ready. Raises ConfigError or EngineError when it cannot start.
        """
        key = (weights_identity(weights), config.engine_key())
        engine = _registry.acquire(key, lambda: cls._started(weights, config), shutdown_all)
        if weights not in engine._copies:
            engine._copies.append(weights)
        return engine

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, as vLLM uses it."""
        return self._supervisor.llm.get_tokenizer()

    @cached_property
    def max_model_len(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return int(self._supervisor.llm.model_config.max_model_len)

    def generate(
        self, requests: Iterable[Request], **limits: Unpack[CallLimits]
    ) -> Generator[tuple[int, Answer]]:
        """Yields (position, outcome) as rows finish: each row once, in any order.

        `requests` is pulled lazily; an error in it is passed on as that row's outcome. Closing the
        iterator aborts what is not done. Raises EngineOverloaded when too many rows of other calls
        wait, and EngineUnavailable when there is no engine.
        """
        outcomes = self._call(requests, limits, streaming=False)
        yield from cast("Iterator[tuple[int, Answer]]", outcomes)  # chunks are for streams only

    def stream(self, requests: Iterable[Request], **limits: Unpack[CallLimits]) -> Generator[Event]:
        """Like `generate`, but first yields (position, Chunk) as tokens come.

        A row still ends with its whole Completion, or with its error.
        """
        yield from self._call(requests, limits, streaming=True)

    def health(self) -> Health:
        """What is true of the engine now. Never blocks on it."""
        return self._supervisor.health()

    def shutdown(self) -> None:
        """Ends the engine and its processes, for all who hold it. Their rows get errors."""
        _registry.forget(self)
        if self.health().state is State.CLOSED:
            return
        self._supervisor.close()
        self._loop.stop()

    def _call(
        self, requests: Iterable[Request], limits: CallLimits, *, streaming: bool
    ) -> Generator[Event]:
        deadline_s, total = limits["deadline_s"], limits.get("total")
        record = CallRecord(total, self.tokenizer.decode if limits.get("log_content") else None)
        caller = current_caller()
        call = Call(
            self._rows,
            self._window,
            record.requests(requests),
            deadline_s=deadline_s,
            total=total,
            streaming=streaming,
            caller=caller,
        )
        ended = "left"
        try:
            with self._admission.admit(total or 1, limits.get("max_waiting_rows")) as ticket:
                wait_s = REBUILD_WAIT_S if deadline_s is None else min(REBUILD_WAIT_S, deadline_s)
                self._supervisor.wait_until_ready(wait_s)
                for position, outcome in call.events():
                    record.outcome(position, outcome)
                    if not isinstance(outcome, Chunk):
                        ticket.answered()
                    yield position, outcome
                ended = "left" if caller.left else "done"
        except FormlineError as error:
            ended = error.code
            raise
        finally:
            record.end(ended)

    def _up(self) -> float:
        return float(self.health().ready)

    def _in_flight(self) -> float:
        return float(self._window.in_flight)

    def _waiting(self) -> float:
        return float(self._admission.waiting)

    def abandon(self) -> None:
        """In a fork: makes sure that this copy never touches the parent's engine."""
        self._supervisor.abandon()

    def _rows_at_once(self) -> int:
        """What the engine computes at once, and as many that are ready for the next places."""
        return 2 * int(self._supervisor.llm.vllm_config.scheduler_config.max_num_seqs)

    def _weights(self) -> str:
        """Of the copies that callers have loaded, the latest that still exists."""
        copies = reversed(self._copies)
        return next((copy for copy in copies if Path(copy).is_dir()), self._copies[-1])

    @classmethod
    def _started(cls, weights: str, config: ModelConfig) -> Engine:
        engine = cls(weights, config)
        try:
            engine._supervisor.start()
            engine._window.resize(config.window_rows or engine._rows_at_once())
        except BaseException:
            engine._loop.stop()
            raise
        return engine


_registry: Registry[Engine] = Registry()


def shutdown_all() -> None:
    """Ends all engines of this process and their child processes. Runs by itself at exit."""
    for engine in _registry.engines():
        engine.shutdown()


def _by_engine(read: Callable[[Engine], float]) -> Callable[[], dict[str, float]]:
    return lambda: {str(n): read(engine) for n, engine in enumerate(_registry.engines())}


Gauges("formline_engine_up", "1 while calls are answered", "engine", _by_engine(Engine._up))
Gauges("formline_rows_in_flight", "Rows in the engine", "engine", _by_engine(Engine._in_flight))
Gauges(
    "formline_rows_waiting",
    "Rows of all calls that have no answer yet",
    "engine",
    _by_engine(Engine._waiting),
)
