"""Who asks: lets a server that sees its client hang up say so to the calls in progress.

MLflow hands the model rows and params, nothing of the connection they came by. A server that knows
more puts its call inside `calling`, and tells by `leave`:

    with calling() as caller:
        ...   # model.predict(...), in threads that inherit this context (asyncio.to_thread)
        caller.leave()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Caller:
    """One client of a server. Thread-safe; leaving is for good."""

    def __init__(self) -> None:
        self._left = threading.Event()
        self._wakes: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def left(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._left.is_set()

    def leave(self) -> None:
        """Ends the caller's calls soon: their rows are aborted in the engine."""
        self._left.set()
        with self._lock:
            wakes = list(self._wakes)
        for wake in wakes:
            wake()

    @contextmanager
    def waiting(self, wake: Callable[[], None]) -> Iterator[None]:
        """Meanwhile `leave` calls `wake`, so that a call that blocks looks at `left`."""
        with self._lock:
            self._wakes.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wakes.remove(wake)


_current: ContextVar[Caller | None] = ContextVar("formline_caller", default=None)


@contextmanager
def calling() -> Iterator[Caller]:
    """Calls to the model made inside, in this context and copies of it, belong to one Caller."""
    caller = Caller()
    token = _current.set(caller)
    try:
        yield caller
    finally:
        _current.reset(token)


def current_caller() -> Caller:
    """The caller of this context; one that never leaves where nobody serves."""
    return _current.get() or Caller()
