"""Rows -> requests of a size an endpoint takes, in bytes and in the time it needs for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock

MAX_BYTES = 8 << 20  # half of Databricks' 16 MB: the envelope and escapes need room
TARGET_S = 30.0  # far below any execution limit (Databricks 297 s, MLflow's server 60 s)
FIRST_ROWS = 16
MOST_ROWS = 256
_SMOOTHING = 0.3


class PackSize:
    """Rows a request, so that one takes about TARGET_S seconds. Thread-safe."""

    def __init__(self, first: int = FIRST_ROWS, most: int = MOST_ROWS) -> None:
        self._rows = float(first)
        self._most = most
        self._lock = Lock()

    @property
    def rows(self) -> int:
        return max(1, int(self._rows))

    def took(self, rows: int, seconds: float) -> None:
        """Moves towards what would have taken TARGET_S; at most doubles at a time."""
        wanted = min(rows * TARGET_S / max(seconds, 1e-3), 2.0 * rows, self._most)
        with self._lock:
            if rows >= self._rows * 0.5:  # a short last pack says little about full ones
                self._rows += _SMOOTHING * (wanted - self._rows)

    def timed_out(self, rows: int) -> None:
        with self._lock:
            self._rows = max(1.0, min(self._rows, rows / 2))


def pack(sizes: Sequence[int], rows: int, max_bytes: int = MAX_BYTES) -> Iterator[range]:
    """Ranges of positions whose `sizes` (bytes) stay within `max_bytes`; a row is never cut."""
    start, held = 0, 0
    for position, size in enumerate(sizes):
        if position > start and (held + size > max_bytes or position - start >= rows):
            yield range(start, position)
            start, held = position, 0
        held += size
    if start < len(sizes):
        yield range(start, len(sizes))
