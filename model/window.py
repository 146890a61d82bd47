"""Flow control: how many rows may be in the engine at once, and whose row goes in next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Share:
    """One call's part of the window. `wake` is called when a slot was granted while it waits."""

    wake: Callable[[], None]
    held: int = 0
    granted: int = field(default=0)
    waiting: bool = False


class Window:
    """A fixed number of slots, one a row in flight, shared fairly between calls.

    A freed slot goes to the waiting call that holds the fewest, so a short call is not stuck
    behind a long one. Thread-safe. Invariant: no slot is free while a call is waiting.
    """

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self._free = slots
        self._waiting: list[Share] = []
        self._lock = threading.Lock()

    def resize(self, slots: int) -> None:
        """Changes the number of slots."""
        with self._lock:
            self._free += slots - self.slots
            self.slots = slots
            self._grant()

    @property
    def in_flight(self) -> int:
        """Slots held or granted now."""
        return self.slots - self._free

    def take(self, share: Share) -> bool:
        """Takes a granted or a free slot for one row; False when there is none."""
        with self._lock:
            if share.granted:
                share.granted -= 1
            elif self._free > 0:
                self._free -= 1
            else:
                return False
            share.held += 1
            return True

    def wait(self, share: Share) -> None:
        """Queues for slots; `share.wake` is called for each one granted until `stop_waiting`."""
        with self._lock:
            share.waiting = True
            self._waiting.append(share)
            self._grant()

    def stop_waiting(self, share: Share) -> None:
        """Leaves the queue; slots granted so far stay the caller's to `take`."""
        with self._lock:
            self._leave(share)

    def release(self, share: Share) -> None:
        """Gives back one row's slot."""
        with self._lock:
            share.held -= 1
            self._free += 1
            self._grant()

    def close(self, share: Share) -> None:
        """Gives back what was granted and never taken. Rows in flight release their own slots."""
        with self._lock:
            self._leave(share)
            self._free += share.granted
            share.granted = 0
            self._grant()

    def _leave(self, share: Share) -> None:
        if share.waiting:
            share.waiting = False
            self._waiting.remove(share)

    def _grant(self) -> None:
        while self._free > 0 and self._waiting:
            share = min(self._waiting, key=lambda s: s.held + s.granted)
            self._free -= 1
            share.granted += 1
            share.wake()
