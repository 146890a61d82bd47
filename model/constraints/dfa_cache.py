"""A cache of automata, and of the refusals to build them, that is bounded by their size."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from model.constraints.dfa import Dfa


class DfaCache:
    """Least recently used first out, as soon as more than `max_edges` edges are kept together."""

    def __init__(self, max_edges: int, refusals: tuple[type[Exception], ...]) -> None:
        self._max_edges, self._refusals = max_edges, refusals
        self._edges = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Dfa | Exception, int]] = OrderedDict()

    def get(self, key: Hashable, build: Callable[[], Dfa]) -> Dfa:
        """What `build` returns, or raises if that is one of the refusals; built once a key."""
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
        outcome = known[0] if known is not None else self._keep(key, self._outcome(build))
        if isinstance(outcome, Dfa):
            return outcome
        raise copy.copy(outcome)

    def _outcome(self, build: Callable[[], Dfa]) -> Dfa | Exception:
        try:
            return build()
        except self._refusals as refusal:
            return refusal.with_traceback(None)

    def _keep(self, key: Hashable, outcome: Dfa | Exception) -> Dfa | Exception:
        edges = sum(map(len, outcome.edges)) if isinstance(outcome, Dfa) else 0
        weight = edges + 50 + len(str(key)) // 10
        with self._lock:
            if key not in self._kept:
                self._kept[key] = (outcome, weight)
                self._edges += weight
            while self._edges > self._max_edges:
                self._edges -= self._kept.popitem(last=False)[1][1]
        return outcome
