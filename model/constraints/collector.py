"""Python's garbage collector in the engine's process: when it looks through everything."""

from __future__ import annotations

import gc

_MIDDLE_COLLECTIONS = 10_000


def collect_rarely() -> None:
    """Makes full collections a thousand times rarer than Python does by itself.

    One stops the scheduling thread for as long as thousands of masks take: it visits all that the
    caches hold. It would find next to nothing: what is compiled, and automata, cut their circles
    when they go, and vLLM's own loop makes none. Young objects are collected as before.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _MIDDLE_COLLECTIONS)
