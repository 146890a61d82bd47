"""Who gets in: refuses a new call while too many rows of others are unanswered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from model.errors import EngineOverloaded


class Ticket:
    """One admitted call's unanswered rows."""

    def __init__(self, admission: Admission, rows: int) -> None:
        self._admission, self._rows = admission, rows

    def answered(self) -> None:
        """Counts one row as answered."""
        if self._rows:
            self._rows -= 1
            self._admission.change(-1)

    def close(self) -> None:
        """Counts the remaining rows as gone."""
        self._admission.change(-self._rows)
        self._rows = 0


class Admission:
    """Counts the unanswered rows of all calls. Thread-safe.

    A call is measured against the others' rows only, so a large call is never refused for ever.
    """

    def __init__(self) -> None:
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """Rows of all admitted calls that have no answer yet."""
        return self._waiting

    @contextmanager
    def admit(self, rows: int, limit: int | None) -> Iterator[Ticket]:
        """Admits a call of `rows` rows, or raises EngineOverloaded."""
        with self._lock:
            if limit is not None and self._waiting >= limit:
                raise EngineOverloaded(
                    f"{self._waiting} rows are waiting already, the limit is {limit}; "
                    "try again in a few seconds"
                )
            self._waiting += rows
        ticket = Ticket(self, rows)
        try:
            yield ticket
        finally:
            ticket.close()

    def change(self, rows: int) -> None:
        """Adds to the number of waiting rows."""
        with self._lock:
            self._waiting += rows
