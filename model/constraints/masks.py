"""The packed masks of threads, for one vocabulary and one automaton."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from model.constraints import token_sets
from model.constraints.containers import KeySlot, Named
from model.constraints.gaps import Gaps
from model.constraints.profiles import Mask, Profiles
from model.constraints.suffixes import Ends
from model.constraints.threads import Plain, Slot, Text, Thread, Threads, Tracked
from model.constraints.vocabulary import Vocabulary
from model.constraints.walks import Chain, Found, SuffixWalker, TrieWalker

__all__ = ["Mask", "Masks", "Threadwise"]

_PROFILES_MAX_BYTES = 128 << 20
_NOTHING = "nothing"


class Masks:
    """What the masks of all constraints over one vocabulary share. Safe to use from threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.profiles = Profiles(vocabulary, _PROFILES_MAX_BYTES)
        self.gaps, self.suffix_gaps = Gaps(vocabulary.trie), Gaps(self.profiles.suffixes)


class Threadwise:
    """The masks of one automaton's threads, with what its values have in common."""

    def __init__(self, shared: Masks) -> None:
        self._shared, self._vocabulary = shared, shared.vocabulary
        self._trie = TrieWalker(shared.vocabulary.trie, shared.gaps, shared.profiles)
        self._suffixes = SuffixWalker(shared.profiles.suffixes, shared.suffix_gaps)
        self._slot_keys: dict[Slot, Hashable] = {}

    @property
    def nbytes(self) -> int:
        return self._trie.nbytes + self._suffixes.nbytes + 200 * len(self._slot_keys)

    def mask(self, threads: Threads) -> Mask:
        """The packed mask of the tokens that any of the threads allows."""
        found = Found()
        for thread in threads:
            self._trie.visit(thread, 0, found)
        mask = self._union(found.masks)
        if found.nodes:
            trie, nodes = self._vocabulary.trie, np.array(found.nodes, dtype=np.int32)
            token_sets.set_nodes(mask, trie.first_token, trie.token_ids, nodes)
        self._allow_ends(mask, found.ends)
        return mask

    def _union(self, masks: list[Mask]) -> Mask:
        if not masks:
            return self._vocabulary.empty_mask()
        first, *others = {id(mask): mask for mask in masks}.values()
        found = first.copy()
        for other in others:
            found |= other
        return found

    def _allow_ends(self, mask: Mask, found: list[tuple[Chain, Ends]]) -> None:
        """Content may end where the rest of a token is allowed after it."""
        nodes: dict[Ends, NDArray[np.bool_]] = {}
        for chain, ends in found:
            if len(ends.ids):
                allowed = self._suffixes.allowed(chain)
                nodes[ends] = nodes[ends] | allowed if ends in nodes else allowed
        for ends, allowed in nodes.items():
            ends.allow(mask, allowed)

    def key(self, threads: Threads) -> Hashable:
        """Equal for threads with equal masks, where that is cheap to see."""
        return frozenset(map(self._key, threads))

    def _key(self, thread: Thread) -> Hashable:
        if not isinstance(thread, Text):
            return thread
        content = thread.content
        if isinstance(content, Plain):
            # equal arrays are one, and live as long as the walker and the keys
            after: Hashable = id(self._suffixes.allowed((content.below,)))
        elif thread.partial:
            return thread
        elif isinstance(content, Named):
            return _NOTHING if self._trie.adds_nothing(content) else thread
        elif isinstance(content, Tracked) and content.is_wide:
            after = (self._trie.taken(content), self._after_slot(content.slot))
        else:
            return thread
        lang, partial = content.lang, thread.partial
        place = self._shared.profiles.place(lang, content.state, content.length, partial)
        return (type(thread), lang, place, partial, after)

    def _after_slot(self, slot: Slot) -> Hashable:
        found = self._slot_keys.get(slot)
        if found is None:
            found = self._slot_keys[slot] = self._slot_key(slot)
        return found

    def _slot_key(self, slot: Slot) -> Hashable:
        if not isinstance(slot, KeySlot):
            return slot
        colon = self._trie.colon(slot.object, slot.node)
        return (colon, slot) if self._suffixes.is_left(colon) else colon
