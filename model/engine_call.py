"""One call: a caller's rows on their way through the engine, driven by the caller's own thread."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol, TypeAlias

from model.caller import Caller
from model.completion import Chunk, Completion, EngineRequest
from model.errors import CallerLeft, DeadlineExceeded, EngineUnavailable, FormlineError
from model.window import Share, Window

Request: TypeAlias = EngineRequest | FormlineError
Answer: TypeAlias = Completion | FormlineError
Event: TypeAlias = tuple[int, Completion | Chunk | FormlineError]


class Rows(Protocol):
    """Where a call's rows are run; neither method blocks."""

    def start(self, call: Call, position: int, request: EngineRequest) -> None:
        """Runs one row; its outcome reaches `call.deliver`, and its slot is released."""

    def abort(self, call: Call) -> None:
        """Aborts all the call's rows still in the engine."""


class Call:
    """Pulls requests lazily, keeps as many in flight as the window allows, yields outcomes.

    Every position is answered exactly once: by a Completion or by a FormlineError. Once the call
    is `_over` (its deadline passed, its engine died, its caller left) nothing more enters the
    engine.
    """

    def __init__(
        self,
        rows: Rows,
        window: Window,
        requests: Iterable[Request],
        *,
        deadline_s: float | None,
        total: int | None = None,
        streaming: bool = False,
        caller: Caller | None = None,
    ) -> None:
        self.streaming = streaming
        self._caller = caller or Caller()
        self._rows, self._window, self._requests = rows, window, iter(requests)
        self._ends_at = None if deadline_s is None else time.monotonic() + deadline_s
        self._deadline_s, self._total = deadline_s, total
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._share = Share(wake=self._wake)
        self._ready: deque[Event] = deque()
        self._in_flight: set[int] = set()
        self._pulled = 0
        self._exhausted = False
        self._over: FormlineError | None = None

    @property
    def share(self) -> Share:
        """The call's part of the window."""
        return self._share

    def deliver(self, position: int, outcome: Completion | Chunk | FormlineError) -> None:
        """Hands over what the engine has for a row. Any thread."""
        self._events.put((position, outcome))

    def events(self) -> Iterator[Event]:
        """Yields (position, outcome) until all rows are answered. Closing it aborts the rest."""
        try:
            with self._caller.waiting(self._wake):
                yield from self._answers()
        finally:
            self._window.close(self._share)
            if self._in_flight:
                self._rows.abort(self)

    def _answers(self) -> Iterator[Event]:
        while True:
            self._feed()
            if self._ready:
                yield from self._drain()
            elif self._exhausted and not self._in_flight:
                return
            else:
                self._wait()

    def _wake(self) -> None:
        self._events.put(None)

    def _drain(self) -> Iterator[Event]:
        while self._ready:
            yield self._ready.popleft()

    @property
    def _wants_rows(self) -> bool:
        """Bounds what the call holds, however fast the engine or slow the caller is."""
        return not self._exhausted and len(self._in_flight) + len(self._ready) < self._window.slots

    def _feed(self) -> None:
        """Pulls rows into the engine until the window is full or the rows have run out."""
        while self._wants_rows:
            if self._over:
                self._answer_the_rest(self._over)
            elif stop := self._must_stop():
                self._end(stop)
            elif self._window.take(self._share):
                self._pull()
            else:
                return

    def _pull(self) -> None:
        """Pulls one row, with a slot in hand."""
        request = None
        try:
            request = next(self._requests, None)
        finally:
            if not isinstance(request, EngineRequest):
                self._window.release(self._share)
        if request is None:
            self._exhausted = True
            return
        position, self._pulled = self._pulled, self._pulled + 1
        if isinstance(request, EngineRequest):
            self._in_flight.add(position)
            self._rows.start(self, position, request)
        else:
            self._ready.append((position, request))

    def _answer_the_rest(self, error: FormlineError) -> None:
        """Answers the rows that never entered the engine; unpulled ones by number if known."""
        if self._total is None:
            request = next(self._requests, None)
            if request is None:
                self._exhausted = True
                return
            answer = request if isinstance(request, FormlineError) else error
            self._ready.append((self._pulled, answer))
            self._pulled += 1
        else:
            self._ready.extend((p, error) for p in range(self._pulled, self._total))
            self._exhausted = True

    def _wait(self) -> None:
        """Blocks until something happens to a row, a slot is granted, or the time is up."""
        if self._wants_rows:
            self._window.wait(self._share)
        with suppress(queue.Empty):
            self._take(self._events.get(timeout=self._remaining()))
            self._collect()
        self._window.stop_waiting(self._share)
        if stop := self._must_stop():
            self._end(stop)

    def _collect(self) -> None:
        """Takes what has happened so far."""
        while not self._events.empty():
            self._take(self._events.get())

    def _take(self, event: Event | None) -> None:
        if event is None or event[0] not in self._in_flight:
            return  # woken up, or the row was answered when the call was over
        position, outcome = event
        if not isinstance(outcome, Chunk):
            self._in_flight.discard(position)
        self._ready.append(event)
        if isinstance(outcome, EngineUnavailable):
            self._over = outcome

    def _end(self, error: FormlineError) -> None:
        """Aborts what is in the engine and answers it with `error`, but for what is done."""
        self._collect()
        self._over = error
        self._rows.abort(self)
        self._ready.extend((position, error) for position in sorted(self._in_flight))
        self._in_flight.clear()

    def _remaining(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def _must_stop(self) -> FormlineError | None:
        """Why nothing more may enter the engine, and what is there is of no use."""
        if self._caller.left:
            return CallerLeft("the caller hung up before this row was done")
        if self._remaining() == 0.0:
            return DeadlineExceeded(
                f"the call's time limit of {self._deadline_s:g} s passed before this row was done; "
                "send fewer rows a call or allow more time"
            )
        return None
