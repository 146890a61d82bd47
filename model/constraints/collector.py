"""Python's garbage collector in the engine's process: when it looks through everything."""

from __future__ import annotations

import gc

_MIDDLE_COLLECTIONS = 10_000


def collect_rarely() -> None:
    """Makes full collections twenty times rarer than Python does by itself.

    One stops the scheduling thread for as long as some hundred masks take: it visits all that the
    caches hold. They hold nothing in circles (an automaton cuts its own when it is dropped), so
    that a full collection finds little; the quick ones of young objects go on as they were.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _MIDDLE_COLLECTIONS)
