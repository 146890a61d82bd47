"""Keeps one vLLM engine alive: starts it, notices its end, rebuilds it, or gives up."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from model.engine_loop import EngineLoop
from model.engine_processes import end, unclaimed
from model.engine_watchdog import Watchdog
from model.errors import EngineUnavailable, FormlineError
from model.events import log_event
from model.metrics import REBUILDS

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

    from model.engine_build import Built
    from model.reasoning import ReasoningSplitter

_LOOK_EVERY_S = 0.2
_FAILED_ROWS_WITHIN_S = 3.0


class State(enum.Enum):
    """What is true of the engine now. FAILED and CLOSED are final."""

    LOADING = "loading"
    READY = "ready"
    REBUILDING = "rebuilding"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True)
class Health:
    """The engine's state for probes: `ready` now, and `alive` as long as waiting can help."""

    state: State
    detail: str
    rebuilds: int

    @property
    def ready(self) -> bool:
        """Whether calls are answered now."""
        return self.state is State.READY

    @property
    def alive(self) -> bool:
        """False when only a new process can help."""
        return self.state not in (State.FAILED, State.CLOSED)


class Supervisor:
    """Owns the AsyncLLM of one engine. Everything here runs on the loop, except where it says so.

    `build` blocks the loop, on which nothing else can happen without an engine.

    Gives up after `max_failed_rebuilds` in a row; a rebuilt engine that dies before it has
    answered a row counts as one. An engine that hangs, as `watchdog` sees it, is killed.
    """

    def __init__(
        self,
        loop: EngineLoop,
        build: Callable[[], Built],
        watchdog: Watchdog,
        *,
        max_failed_rebuilds: int,
    ) -> None:
        self._loop, self._build, self._watchdog = loop, build, watchdog
        self._max_failed_rebuilds = max_failed_rebuilds
        self._llm: AsyncLLM | None = None
        self._splitter: ReasoningSplitter | None = None
        self._changed = threading.Condition()
        self._state, self._detail = State.LOADING, "the engine is being loaded"
        self._failures = self._rebuilds = 0
        self._proven = True  # of the first engine, whose death is no failed rebuild
        self._watcher: asyncio.Task[None] | None = None
        self._processes: set[psutil.Process] = set()
        self._died = asyncio.Event()
        self.rows: set[asyncio.Task[None]] = set()

    # -- for any thread -------------------------------------------------------------------------

    def start(self) -> None:
        """Builds the first engine and waits for it. Any thread.

        Raises what `build` raises; nothing is left running then.
        """
        try:
            self._loop.submit(self._start()).result()
        except BaseException:
            self._become(State.CLOSED, "the engine could not be started")
            end(unclaimed())
            raise

    def health(self) -> Health:
        """What is true now. Any thread; never blocks on the engine."""
        with self._changed:
            return Health(self._state, self._detail, self._rebuilds)

    def wait_until_ready(self, timeout_s: float) -> None:
        """Waits for an engine that is being rebuilt. Any thread.

        Raises EngineUnavailable when it is not ready in time or never will be.
        """
        ends_at = time.monotonic() + timeout_s
        with self._changed:
            while self._state is not State.READY:
                left = ends_at - time.monotonic()
                if left <= 0 or self._state in (State.FAILED, State.CLOSED):
                    raise EngineUnavailable(self._detail)
                self._changed.wait(left)

    def close(self) -> None:
        """Shuts the engine down for good, its processes included. Any thread."""
        building = self.health().state in (State.LOADING, State.REBUILDING)
        self._become(State.CLOSED, "the engine was shut down")
        if building:  # the loop is busy until the build ends, which killing its processes does
            end(unclaimed())
        self._loop.submit(self._close()).result()
        end(self._processes)

    def abandon(self) -> None:
        """In a fork: the engine is the parent's; nothing here may end it."""
        self._changed = threading.Condition()
        self._state, self._detail = State.CLOSED, "the engine belongs to another process"
        if self._llm is not None:
            client = self._llm.engine_core
            for holder in (client, client.resources.engine_manager):
                holder._finalizer.detach()

    # -- on the loop ----------------------------------------------------------------------------

    @property
    def llm(self) -> AsyncLLM:
        """The engine of this moment; EngineUnavailable while there is none."""
        if self._llm is None:
            raise EngineUnavailable(self._detail)
        return self._llm

    @property
    def splitter(self) -> ReasoningSplitter | None:
        """Splits thinking from answers, when the engine's config names a reasoning parser."""
        return self._splitter

    def engine_died(self) -> None:
        """Tells that a row met a dead engine, so that no call is let in any more."""
        if self._state is State.READY:
            self._become(State.REBUILDING, "the engine died and is being rebuilt")
            self._died.set()

    def row_answered(self) -> None:
        """Tells that this engine works, which ends a row of failed rebuilds."""
        self._failures = 0
        self._proven = True

    async def _start(self) -> None:
        self._take(self._build())
        self._watcher = asyncio.create_task(self._watch())

    def _take(self, built: Built) -> None:
        if self._state is State.CLOSED:  # closed while it was being built
            built.llm.shutdown()
            end(built.processes)
            return
        self._llm, self._processes, self._splitter = built.llm, built.processes, built.splitter
        self._watchdog.reset()
        self._become(State.READY, "the engine answers")

    async def _watch(self) -> None:
        """Rebuilds the engine each time it dies, until it is closed or given up."""
        while self._llm is not None:
            if hung := self._watchdog.look(self._llm, self._processes):
                log_event("engine_hung", logging.ERROR, reason=hung)
                end(self._processes)
            if hung or self._llm.errored:
                self.engine_died()
                await self._rebuild(self._llm)
            await self._until_died_or(_LOOK_EVERY_S)

    async def _until_died_or(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._died.wait(), timeout_s)

    async def _rebuild(self, dead: AsyncLLM) -> None:
        log_event("engine_died", logging.ERROR)
        self._died.clear()
        self._llm = None
        await self._fail_rows()
        dead.shutdown(timeout=0)
        end(self._processes)
        del dead
        gc.collect()  # an AsyncLLM refers to itself: its 50 MB wait for a full collection
        if not self._proven:
            self._failed("it died before it had answered a row")
        while self._llm is None and self._state is State.REBUILDING:
            await self._attempt()

    async def _attempt(self) -> None:
        try:
            self._take(self._build())
        except FormlineError as error:
            if self._state is State.CLOSED:  # which ended the processes of this build
                return
            self._failed(error.message)
            await asyncio.sleep(2.0 ** (self._failures - 1))
        else:
            self._rebuilds += 1
            self._proven = False
            REBUILDS.labels("done").inc()
            log_event("engine_rebuilt")

    def _failed(self, reason: str) -> None:
        self._failures += 1
        REBUILDS.labels("failed").inc()
        log_event("engine_rebuild_failed", logging.ERROR, failures=self._failures, reason=reason)
        if self._failures < self._max_failed_rebuilds:
            self._become(State.REBUILDING, f"the engine is being rebuilt; last failure: {reason}")
        else:
            self._become(
                State.FAILED,
                f"the engine could not be rebuilt, tried {self._failures} times: {reason}",
            )

    async def _fail_rows(self) -> None:
        """Lets rows notice the death by themselves, and ends those that do not."""
        if self.rows:
            await asyncio.wait(self.rows, timeout=_FAILED_ROWS_WITHIN_S)
        for row in self.rows:
            row.cancel()

    async def _close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        self._watchdog.reset()
        for row in self.rows:
            row.cancel()
        if self.rows:
            await asyncio.wait(self.rows, timeout=_FAILED_ROWS_WITHIN_S)
        if self._llm is not None:
            self._llm.shutdown()
            self._llm = None

    def _become(self, state: State, detail: str) -> None:
        with self._changed:
            if self._state not in (State.FAILED, State.CLOSED) or state is State.CLOSED:
                self._state, self._detail = state, detail
            self._changed.notify_all()
