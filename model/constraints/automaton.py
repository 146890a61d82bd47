"""States, transitions and masks of one constraint, cached and shared by all its rows.

A row holds only its state. The first row to reach a state pays for its mask and its transitions;
every later row looks them up. What is cached is dropped as a whole when it outgrows its bound:
states that rows still hold stay right.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable

import numpy as np

from model.constraints.json_parser import read, start
from model.constraints.masks import Mask, Masks, Threadwise
from model.constraints.shapes import Constraint
from model.constraints.threads import Interner, Threads

logger = logging.getLogger("formline.constraints")

_STATE_BYTES, _TRANSITION_BYTES, _THREAD_BYTES = 700, 120, 600  # measured, rounded up


class State:
    """All ways to read the answer so far. Compared by identity; made by its automaton."""

    __slots__ = ("after", "can_end", "mask", "threads")

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.can_end = any(thread.can_end for thread in threads)
        self.after: dict[int, State | None] = {}
        self.mask: Mask | None = None


class Automaton:
    """One constraint over one vocabulary. `stop_ids` may end an answer where it is complete."""

    def __init__(
        self,
        constraint: Constraint,
        masks: Masks,
        stop_ids: frozenset[int],
        max_bytes: int = 64 << 20,
        constraint_bytes: int = 0,
    ) -> None:
        self._make = Interner(constraint.style, constraint)
        self._states: dict[Hashable, State] = {}
        self.constraint, self.masks, self.max_bytes = constraint, masks, max_bytes
        self._constraint_bytes = constraint_bytes
        self._tokens = masks.vocabulary.tokens
        self.stop_ids = frozenset(i for i in stop_ids if 0 <= i < masks.vocabulary.size)
        self._stops = masks.vocabulary.pack(sorted(self.stop_ids))
        self._nothing = masks.vocabulary.empty_mask().tobytes()
        self._forget()

    def __del__(self) -> None:
        self._cut()

    def _cut(self) -> None:
        """Parts states and threads, which refer to each other in circles.

        They go at once then. Left to the garbage collector, an automaton that is dropped costs the
        engine a pause of a tenth of a second. States that rows still hold stay right.
        """
        for state in list(self._states.values()):
            state.after.clear()
        self._make.clear()

    def _forget(self) -> None:
        self._cut()
        self._states = {}
        self._by_key: dict[Hashable, Mask] = {}
        self._by_bytes: dict[bytes, Mask] = {}
        self._threadwise = Threadwise(self.masks)
        self._transitions = 0
        self.start = self._state(start(self.constraint, self._make))

    @property
    def nbytes(self) -> int:
        """An upper estimate of the memory that is held."""
        return (
            self._constraint_bytes
            + len(self._states) * _STATE_BYTES
            + self._transitions * _TRANSITION_BYTES
            + len(self._make) * _THREAD_BYTES
            + len(self._by_bytes) * self._stops.nbytes
            + self._threadwise.nbytes
        )

    def mask(self, state: State) -> Mask:
        """The packed mask, int32 [words], of the tokens allowed next. Do not change it."""
        if state.mask is None:
            state.mask = self._mask(state)
        return state.mask

    def after(self, state: State, token: int) -> State | None:
        """The state after one more token, None where it is not allowed. Stop ids are not taken."""
        try:
            return state.after[token]
        except KeyError:
            found = state.after[token] = self._after(state, token)
            self._transitions += 1
            return found

    def _after(self, state: State, token: int) -> State | None:
        text = self._tokens[token] if 0 <= token < len(self._tokens) else b""
        threads = read(state.threads, text) if text else ()
        return self._state(threads) if threads else None

    def _state(self, threads: Threads) -> State:
        key = threads[0] if len(threads) == 1 else frozenset(threads)
        found = self._states.get(key)
        if found is None:
            found = self._states.setdefault(key, State(threads))
        return found

    def trim(self) -> None:
        """Forgets everything cached when it has outgrown the bound."""
        if self.nbytes > self.max_bytes:
            self._forget()

    def _mask(self, state: State) -> Mask:
        key = (self._threadwise.key(state.threads), state.can_end)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._find_mask(state)
        return found

    def _find_mask(self, state: State) -> Mask:
        found = self._threadwise.mask(state.threads)
        if state.can_end:
            found |= self._stops
        packed = found.tobytes()
        if packed == self._nothing:  # the vocabulary lacks a token that the text needs
            logger.warning("no token of the vocabulary can continue the answer; it is ended")
            packed = self._stops.tobytes()
        known = self._by_bytes.get(packed)
        if known is None:
            known = self._by_bytes[packed] = np.frombuffer(packed, dtype=np.int32)
        return known
