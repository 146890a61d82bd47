"""The automata of one engine process: one a constraint, bounded in bytes, shared by its rows."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from model.constraints.automaton import Automaton
from model.constraints.compiling import compile_constraint
from model.constraints.masks import Masks
from model.constraints.spec import ConstraintSpec
from model.constraints.vocabulary import Vocabulary

MAX_BYTES = 512 << 20
"""What all automata of a vocabulary may hold together; rows in flight keep their own states."""

_CONSTRAINT_BYTES, _CONSTRAINT_BYTES_A_CHARACTER = 20_000, 25  # measured over 239 schemas
_LOOK_EVERY = 32  # rows of known constraints, which grow them too


class Automata:
    """Finds or makes automata for one vocabulary; the least recently used go first."""

    def __init__(self, vocabulary: Vocabulary, max_bytes: int = MAX_BYTES) -> None:
        self.masks, self.max_bytes = Masks(vocabulary), max_bytes
        self._kept: OrderedDict[tuple[ConstraintSpec, frozenset[int]], Automaton] = OrderedDict()
        self._lock = Lock()
        self.hits = self.misses = 0

    def get(self, spec: ConstraintSpec, stop_ids: frozenset[int]) -> Automaton:
        """The automaton of a spec; raises UnsupportedSchema. Compiles outside the lock."""
        key = (spec, stop_ids)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                if self.hits % _LOOK_EVERY == 0:
                    self._trim()
                return found
            self.misses += 1
        made = Automaton(
            compile_constraint(spec),
            self.masks,
            stop_ids,
            self.max_bytes // 2,
            _CONSTRAINT_BYTES + _CONSTRAINT_BYTES_A_CHARACTER * len(spec.text),
        )
        made.mask(made.start)
        with self._lock:
            found = self._kept.setdefault(key, made)
            self._trim()
        return found

    @property
    def nbytes(self) -> int:
        """An upper estimate of the memory that all automata hold."""
        return sum(automaton.nbytes for automaton in self._kept.values())

    def _trim(self) -> None:
        """Drops automata until the bound holds; one that alone is too large starts afresh."""
        total = 0
        for automaton in self._kept.values():
            automaton.trim()
            total += automaton.nbytes
        while total > self.max_bytes and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            total -= dropped.nbytes
