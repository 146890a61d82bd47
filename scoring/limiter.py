"""How many requests may be in flight: more while they succeed, half on "too many"."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from threading import Condition

COOL_DOWN_S = 1.0


class AdaptiveLimit:
    """Additive increase, multiplicative decrease, between 1 and `most`. Thread-safe."""

    def __init__(self, most: int, start: int = 2) -> None:
        self._most = most
        self._limit = float(min(start, most))
        self._in_flight = 0
        self._last_cut = float("-inf")
        self._changed = Condition()

    @property
    def limit(self) -> int:
        return int(self._limit)

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Waits for a free slot, and holds it inside the block."""
        with self._changed:
            self._changed.wait_for(lambda: self._in_flight < self.limit)
            self._in_flight += 1
        try:
            yield
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify_all()

    def succeeded(self) -> None:
        """Adds one slot for every `limit` successes."""
        with self._changed:
            self._limit = min(self._most, self._limit + 1 / self._limit)
            self._changed.notify_all()

    def refused(self) -> None:
        """Halves the limit; refusals of one burst count once."""
        with self._changed:
            now = time.monotonic()
            if now - self._last_cut >= COOL_DOWN_S:
                self._limit = max(1.0, self._limit / 2)
                self._last_cut = now
