"""Ctrl-C: the first asks the job to stop after the chunks in flight, the second stops at once."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from threading import Event
from types import FrameType


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Event]:
    """An event that the first Ctrl-C sets; further ones raise KeyboardInterrupt as usual.

    Outside the main thread signals are not ours to take: there the event is never set.
    """
    stop = Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(signal_number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("\nfinishing the rows in flight; Ctrl-C again drops them", file=sys.stderr)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
