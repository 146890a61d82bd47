"""The engine of this process: rows in, completions out, for any number of callers at once.

    engine = Engine.acquire(weights, config)
    for position, outcome in engine.generate(requests, deadline_s=50):
        ...

One AsyncLLM a process for each pair of weights and config, on an event loop of its own thread; the
rows of all callers share its continuous batch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from multiprocessing.util import Finalize
from typing import Any

from model.admission import Admission
from model.completion import Choice, Chunk, Completion, EngineRequest
from model.config import ModelConfig
from model.engine_call import Answer, Call, Event, Request
from model.engine_loop import EngineLoop
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


class Engine:
    """A running engine. Thread-safe; made by `acquire` only."""

    def __init__(self, weights: str, config: ModelConfig) -> None:
        from model.engine_build import build_engine
        from model.engine_rows import EngineRows

        self._config = config
        self._loop = EngineLoop("formline-engine")
        self._supervisor = Supervisor(
            self._loop,
            lambda: build_engine(weights, config.engine_kwargs()),
            max_failed_rebuilds=config.rebuild_attempts,
        )
        self._window = Window(config.window_rows)
        self._admission = Admission()
        self._rows = EngineRows(self._loop, self._supervisor, self._window)

    @classmethod
    def acquire(cls, weights: str, config: ModelConfig) -> Engine:
        """The process's engine for `weights` and `config`, started if it does not run yet.

        Blocks until the engine is ready. Raises ConfigError or EngineError when it cannot start.
        """
        return _registry.acquire(weights, config)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, as vLLM uses it."""
        return self._supervisor.llm.get_tokenizer()

    @cached_property
    def max_model_len(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return int(self._supervisor.llm.model_config.max_model_len)

    def generate(
        self,
        requests: Iterable[Request],
        *,
        deadline_s: float | None,
        total: int | None = None,
        max_waiting_rows: int | None = None,
    ) -> Iterator[tuple[int, Answer]]:
        """Yields (position, outcome) as rows finish: each row once, in any order.

        `requests` is pulled lazily; an error in it is passed on as that row's outcome. Rows not
        done after `deadline_s` come back as DeadlineExceeded; `total`, the number of requests,
        saves rendering those that can no longer be answered. Closing the iterator aborts the rest.
        Raises EngineOverloaded when other calls have `max_waiting_rows` unanswered rows, and
        EngineUnavailable when there is no engine.
        """
        for position, outcome in self._call(
            requests, deadline_s, total, max_waiting_rows, streaming=False
        ):
            assert not isinstance(outcome, Chunk)  # only streaming calls get chunks
            yield position, outcome

    def stream(
        self,
        requests: Iterable[Request],
        *,
        deadline_s: float | None,
        total: int | None = None,
        max_waiting_rows: int | None = None,
    ) -> Iterator[Event]:
        """Like `generate`, but first yields (position, Chunk) as tokens come.

        A row still ends with its Completion, of which only the token counts are whole, or with
        its error. Closing the iterator aborts what is not done.
        """
        yield from self._call(requests, deadline_s, total, max_waiting_rows, streaming=True)

    def health(self) -> Health:
        """What is true of the engine now. Never blocks on it."""
        return self._supervisor.health()

    def shutdown(self) -> None:
        """Ends the engine and its processes, for all who hold it. Their rows get errors."""
        _registry.forget(self)
        self._supervisor.close()
        self._loop.stop()

    def _call(
        self,
        requests: Iterable[Request],
        deadline_s: float | None,
        total: int | None,
        max_waiting_rows: int | None,
        *,
        streaming: bool,
    ) -> Iterator[Event]:
        with self._admission.admit(total or 1, max_waiting_rows) as ticket:
            self._supervisor.wait_until_ready(min(REBUILD_WAIT_S, deadline_s or REBUILD_WAIT_S))
            call = Call(
                self._rows,
                self._window,
                requests,
                deadline_s=deadline_s,
                total=total,
                streaming=streaming,
            )
            for position, outcome in call.events():
                if not isinstance(outcome, Chunk):
                    ticket.answered()
                yield position, outcome

    def _start(self) -> None:
        try:
            self._supervisor.start()
        except BaseException:
            self._loop.stop()
            raise


class _Registry:
    """The engines of this process, by weights and config."""

    def __init__(self) -> None:
        self._engines: dict[tuple[str, str], Engine] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._lock = threading.Lock()
        self._at_exit: object = None

    def acquire(self, weights: str, config: ModelConfig) -> Engine:
        key = (os.path.realpath(weights), config.engine_key())
        with self._lock:
            key_lock = self._locks.setdefault(key, threading.Lock())
            if self._at_exit is None:  # runs before multiprocessing waits for its children
                self._at_exit = Finalize(None, shutdown_all, exitpriority=1000)
        with key_lock:
            engine = self._engines.get(key)
            if engine is None or not engine.health().alive:
                engine = Engine(weights, config)
                engine._start()
                self._engines[key] = engine
            return engine

    def forget(self, engine: Engine) -> None:
        with self._lock:
            self._engines = {k: e for k, e in self._engines.items() if e is not engine}

    def engines(self) -> list[Engine]:
        return list(self._engines.values())


_registry = _Registry()


def shutdown_all() -> None:
    """Ends all engines of this process and their child processes. Runs by itself at exit."""
    for engine in _registry.engines():
        engine.shutdown()
