"""What tokens hold after the end of a string or number: one tree for a whole vocabulary.

Many tokens end a string and go on with punctuation, and the same few suffixes come again and again.
What is around a string is therefore walked once over the tree of all suffixes, and says for every
string at once which of its last tokens are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.constraints import token_sets
from model.constraints.trie import DEAD, Trie

Int32 = NDArray[np.int32]

_QUOTE, _COMMA = b'",'
_DIGITS = b"0123456789"
_AFTER_NUMBER = frozenset(b" \t\n,}]")


@dataclass(frozen=True, eq=False)
class Ends:
    """Tokens in which some content ends.

    ids       int32 [tokens]
    suffixes  int32 [tokens]  the node of the suffix tree for what follows the content
    """

    ids: Int32
    suffixes: Int32

    def allow(self, mask: Int32, nodes: NDArray[np.bool_]) -> None:
        """Sets the tokens whose suffix is among the nodes, bool [nodes of the tree]."""
        token_sets.set_where(mask, self.ids, self.suffixes, nodes)

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.suffixes.nbytes


_NONE = Ends(np.empty(0, np.int32), np.empty(0, np.int32))


class Suffixes:
    """The tree; node 0 is the empty suffix.

    Below a node of the trie where content ends (after a quote, or before the first byte that is no
    number's) `ends_at` finds the tokens.
    """

    def __init__(self, trie: Trie) -> None:
        self._children: list[dict[int, int]] = [{}]
        self._quotes = [-1]  # per node the quotes after its first comma, -1 without one
        self._below: dict[int, Ends] = {}
        self._begin, self._count = trie.nowhere.copy(), np.zeros(trie.nodes, dtype=np.int32)
        self.quoted = trie.children_by(_QUOTE)
        self.number_ends = trie.nowhere.copy()
        ids: list[int] = []
        suffixes: list[int] = []
        for node in self.quoted[self.quoted != DEAD].tolist():
            self._add(trie, node, None, ids, suffixes)
        for node in _number_ends(trie):
            self.number_ends[node] = node
            self._add(trie, node, _AFTER_NUMBER, ids, suffixes)
        self._ids, self._suffixes = np.array(ids, np.int32), np.array(suffixes, np.int32)
        self._is_far = np.array(self._quotes) > 1
        self._has_far = bool(self._is_far.any())

    @property
    def size(self) -> int:
        return len(self._children)

    def children(self, node: int) -> dict[int, int]:
        """The node's edges, byte -> child. Do not change it."""
        return self._children[node]

    def ends_at(self, nodes: Int32) -> Ends:
        """All tokens below places where content ends."""
        places = token_sets.gather(self._begin, self._count, nodes)
        return Ends(self._ids[places], self._suffixes[places])

    def ends_below(self, node: int) -> Ends:
        """All tokens below one place where content ends."""
        found = self._below.get(node)
        if found is None:
            found = self._below[node] = self.ends_at(np.array([node], dtype=np.int32))
        return found

    def near_and_far(self, ends: Ends) -> tuple[Ends, Ends]:
        """Tokens that hold no second string or name after the content, and those that may."""
        if not self._has_far:
            return ends, _NONE
        far = self._is_far[ends.suffixes]
        if not far.any():
            return ends, _NONE
        near = ~far
        return Ends(ends.ids[near], ends.suffixes[near]), Ends(ends.ids[far], ends.suffixes[far])

    def _add(
        self,
        trie: Trie,
        end: int,
        first: frozenset[int] | None,
        ids: list[int],
        suffixes: list[int],
    ) -> None:
        self._begin[end] = len(ids)
        pending = [(end, 0)]
        while pending:
            node, here = pending.pop()
            if first is None or node != end:
                own = trie.tokens_at(node).tolist()
                ids += own
                suffixes += [here] * len(own)
            for byte, child in trie.children(node).items():
                if first is None or node != end or byte in first:
                    pending.append((child, self._child(here, byte)))
        self._count[end] = len(ids) - self._begin[end]

    def _child(self, node: int, byte: int) -> int:
        found = self._children[node].get(byte)
        if found is None:
            found = self._children[node][byte] = len(self._children)
            self._children.append({})
            quotes = self._quotes[node]
            is_counted = byte == (_COMMA if quotes < 0 else _QUOTE)
            self._quotes.append(quotes + is_counted)
        return found


def _number_ends(trie: Trie) -> list[int]:
    """The nodes after a digit that go on with a byte that is no number's."""
    after = np.isin(trie.byte, np.frombuffer(bytes(_AFTER_NUMBER), np.uint8))
    nodes = np.unique(trie.parent[1:][after[1:]])
    found: list[int] = nodes[np.isin(trie.byte[nodes], np.frombuffer(_DIGITS, np.uint8))].tolist()
    return found
