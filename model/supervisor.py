"""Keeps one vLLM engine alive: starts it, notices its death, rebuilds it, or gives up."""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.engine_loop import EngineLoop
from model.errors import EngineUnavailable, FormlineError

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

logger = logging.getLogger(__name__)

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

    Gives up after `max_failed_rebuilds` in a row: an engine that dies before it has answered a
    row counts as a failed rebuild too.
    """

    def __init__(
        self, loop: EngineLoop, build: Callable[[], AsyncLLM], *, max_failed_rebuilds: int
    ) -> None:
        self._loop, self._build = loop, build
        self._max_failed_rebuilds = max_failed_rebuilds
        self._llm: AsyncLLM | None = None
        self._changed = threading.Condition()
        self._state, self._detail = State.LOADING, "the engine is being loaded"
        self._failures = self._rebuilds = 0
        self._watcher: asyncio.Task[None] | None = None
        self.rows: set[asyncio.Task[None]] = set()

    # -- for any thread -------------------------------------------------------------------------

    def start(self) -> None:
        """Builds the first engine and waits for it. Raises what `build` raises. Any thread."""
        try:
            self._loop.submit(self._start()).result()
        except BaseException:
            self._become(State.CLOSED, "the engine could not be started")
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
        self._become(State.CLOSED, "the engine was shut down")
        self._loop.submit(self._close()).result()

    # -- on the loop ----------------------------------------------------------------------------

    @property
    def llm(self) -> AsyncLLM:
        """The engine of this moment; EngineUnavailable while there is none."""
        if self._llm is None:
            raise EngineUnavailable(self._detail)
        return self._llm

    def row_answered(self) -> None:
        """Tells that this engine works, which ends a row of failed rebuilds."""
        self._failures = 0

    async def _start(self) -> None:
        self._llm = self._build()
        self._become(State.READY, "the engine answers")
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while self._state is State.READY:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._llm is not None and self._llm.errored:
                await self._rebuild(self._llm)

    async def _rebuild(self, dead: AsyncLLM) -> None:
        logger.error("the engine process died; rebuilding the engine")
        self._llm = None
        self._failures += 1
        self._become(State.REBUILDING, "the engine died and is being rebuilt")
        await self._fail_rows()
        dead.shutdown(timeout=0)
        while self._llm is None and self._state is State.REBUILDING:
            await self._attempt()

    async def _attempt(self) -> None:
        if self._failures > self._max_failed_rebuilds:
            self._become(State.FAILED, f"gave up after {self._max_failed_rebuilds} failed rebuilds")
            return
        try:
            self._llm = self._build()
        except FormlineError as error:
            self._failures += 1
            logger.error("rebuilding the engine failed: %s", error)
            self._become(State.REBUILDING, f"the engine is being rebuilt; last try: {error}")
            await asyncio.sleep(min(2.0**self._failures, 30.0))
        else:
            self._rebuilds += 1
            self._become(State.READY, "the engine answers")

    async def _fail_rows(self) -> None:
        """Lets rows notice the death by themselves, and ends those that do not."""
        if self.rows:
            await asyncio.wait(self.rows, timeout=_FAILED_ROWS_WITHIN_S)
        for row in self.rows:
            row.cancel()

    async def _close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
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
