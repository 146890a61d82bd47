"""What constraints cost, measured inside vLLM's engine process, whichever backend a row names.

One observation a request compiled and one a step masked, so that measuring costs nothing a token.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import Counter, Histogram
from vllm.v1.structured_output import StructuredOutputManager

COMPILE_SECONDS = Histogram(
    "formline_constraint_compile_seconds",
    "Seconds until a request's constraint was ready, compiled or found in the cache",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30),
)
MASK_SECONDS = Histogram(
    "formline_constraint_mask_seconds",
    "Seconds to fill one step's token masks, all rows of the batch together",
    buckets=(0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 1),
)
CACHE = Counter(
    "formline_constraint_cache", "Constraints looked up in the cache of automata", ["outcome"]
)


def meter() -> None:
    """Measures this process's StructuredOutputManager from now on. Call it once."""
    manager = StructuredOutputManager
    manager._create_grammar = _compiled(manager._create_grammar)
    manager.grammar_bitmask = _masked(manager.grammar_bitmask)


def _compiled(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def measured(self: Any, request: Any) -> Any:
        began = time.perf_counter()
        try:
            return create(self, request)
        finally:
            COMPILE_SECONDS.observe(time.perf_counter() - began)
            _count_lookups(self.backend)

    return measured


def _masked(fill: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fill)
    def measured(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        mask = fill(self, *args, **kwargs)
        if mask is not None:  # None: no row of this step has a constraint
            MASK_SECONDS.observe(time.perf_counter() - began)
        return mask

    return measured


_counted = {"hit": 0, "miss": 0}


def _count_lookups(backend: Any) -> None:
    """Catches up with the counts of our backend's cache; vLLM's own backends have none."""
    cache = getattr(backend, "_automata", None)
    if cache is not None:
        for outcome, now in (("hit", cache.hits), ("miss", cache.misses)):
            CACHE.labels(outcome).inc(max(0, now - _counted[outcome]))
            _counted[outcome] = now
