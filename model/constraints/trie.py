"""A prefix tree over token byte strings, and walks of it under an automaton.

Nodes are numbered depth first over the sorted tokens, so a subtree is a range of nodes and the
tokens below a node are a slice of `token_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.constraints import trie_walk
from model.constraints.dfa import Dfa
from model.constraints.partials import Partial
from model.constraints.trie_walk import TrieArrays

DEAD = -1
NOT_COUNTED = np.empty((0, 0), dtype=np.bool_)

Int32 = NDArray[np.int32]


class Walked(NamedTuple):
    """The live part of a walk, in no particular order.

    ids, id_reads                   int32 [tokens]  tokens that end below the start, with the
                                    characters each has begun by its end
    exits, exit_states, exit_reads  int32 [exits]   where content may end, between characters
    """

    ids: Int32
    id_reads: Int32
    exits: Int32
    exit_states: Int32
    exit_reads: Int32


@dataclass(frozen=True, eq=False)
class Trie:
    """The arrays of a trie of `nodes` nodes; node 0 is the root.

    byte         uint8 [nodes]      the edge into the node
    parent       int32 [nodes]      the root's parent is DEAD
    depth        int16 [nodes]      bytes from the root
    end          int32 [nodes]      one past the node's last descendant
    first_token  int32 [nodes + 1]  tokens ending at n: token_ids[first_token[n]:first_token[n + 1]]
    token_ids    int32 [tokens]     ids in the order of their bytes; equal bytes stay together
    token_node   int32 [ids]        where each id ends; DEAD for an id without bytes
    levels       one more than the longest token's bytes
    """

    byte: NDArray[np.uint8]
    parent: Int32
    depth: NDArray[np.int16]
    end: Int32
    first_token: Int32
    token_ids: Int32
    token_node: Int32
    levels: int
    _children: dict[int, dict[int, int]] = field(default_factory=dict, repr=False)

    @property
    def nodes(self) -> int:
        return len(self.byte)

    def children(self, node: int) -> dict[int, int]:
        """The node's edges, byte -> child, by ascending byte. Cached: do not change it."""
        found = self._children.get(node)
        if found is None:
            found = self._children[node] = self._read_children(node)
        return found

    def _read_children(self, node: int) -> dict[int, int]:
        found: dict[int, int] = {}
        child, end = node + 1, int(self.end[node])
        while child < end:
            found[int(self.byte[child])] = child
            child = int(self.end[child])
        return found

    def find(self, text: bytes, node: int = 0) -> int:
        """The node that `text` leads to from `node`, or DEAD."""
        for byte in text:
            node = self.children(node).get(byte, DEAD)
            if node == DEAD:
                return DEAD
        return node

    def tokens_at(self, node: int) -> Int32:
        """The ids of the tokens that end at the node (equal bytes may have several)."""
        return self.token_ids[self.first_token[node] : self.first_token[node + 1]]

    def tokens_below(self, node: int) -> Int32:
        """The ids of all tokens that begin with the node's bytes, its own included."""
        return self.token_ids[self.first_token[node] : self.first_token[self.end[node]]]

    def walk(
        self,
        dfa: Dfa,
        start: int,
        partial: Partial = (),
        node: int = 0,
        *,
        in_json: bool,
        ends: Int32 | None = None,
        live: NDArray[np.bool_] = NOT_COUNTED,
    ) -> Walked:
        """What an automaton reads below `node`, where it is in the state `start`.

        partial  what is half read of a character there
        in_json  whether bytes are those between the quotes of a JSON string, escapes included, or
                 plain UTF-8
        ends     int32 [nodes]         where content that ends at a node goes on, or DEAD
        live     bool [states, reads]  whether a state can be completed after so many characters;
                                       NOT_COUNTED where their number does not matter
        """
        ends, half = self.nowhere if ends is None else ends, trie_walk.of(partial)
        found = trie_walk.walk(self._arrays, ends, *dfa.arrays, live, in_json, start, half, node)
        return Walked(*found)

    @cached_property
    def _arrays(self) -> TrieArrays:
        return TrieArrays(
            self.byte, self.depth, self.end, self.first_token, self.token_ids, self.levels
        )

    @cached_property
    def nowhere(self) -> Int32:
        """int32 [nodes], all DEAD."""
        return np.full(self.nodes, DEAD, dtype=np.int32)

    def children_by(self, byte: int) -> Int32:
        """int32 [nodes]: each node's child by a byte, or DEAD."""
        found = self.nowhere.copy()
        children = 1 + np.flatnonzero(self.byte[1:] == byte)
        found[self.parent[children]] = children
        return found


def build_trie(tokens: Sequence[bytes]) -> Trie:
    """The trie of the non-empty `tokens`; a token's id is its position."""
    order = sorted((i for i, token in enumerate(tokens) if token), key=tokens.__getitem__)
    ordered = [tokens[i] for i in order]
    lengths = np.fromiter(map(len, ordered), dtype=np.int64, count=len(ordered))
    data = np.frombuffer(b"".join(ordered) + b"\0", dtype=np.uint8)
    offsets = np.cumsum(lengths) - lengths
    shared = _shared_prefixes(data, offsets, lengths)

    fresh = lengths - shared  # token i adds the nodes of depths shared[i] + 1 .. lengths[i]
    last = np.cumsum(fresh)  # the node where token i ends; equal tokens add no node
    nodes = int(fresh.sum()) + 1
    steps = _ranges(shared, fresh)
    byte = np.concatenate(([0], data[np.repeat(offsets, fresh) + steps])).astype(np.uint8)
    depth = np.concatenate(([0], steps + 1)).astype(np.int16)
    token_ids = np.array(order, dtype=np.int32)
    token_node = np.full(len(tokens), DEAD, dtype=np.int32)
    token_node[token_ids] = last
    first_token = np.searchsorted(last, np.arange(nodes + 1)).astype(np.int32)
    parent, end = _link(depth)
    return Trie(
        byte=byte,
        parent=parent,
        depth=depth,
        end=end,
        first_token=first_token,
        token_ids=token_ids,
        token_node=token_node,
        levels=int(depth.max()) + 1,
    )


def _shared_prefixes(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many first bytes each of the sorted tokens shares with the one before it."""
    shared = np.zeros(len(lengths), dtype=np.int64)
    pairs = np.arange(1, len(lengths))
    depth = 0
    while len(pairs):
        both = np.minimum(lengths[pairs], lengths[pairs - 1]) > depth
        pairs = pairs[both]
        same = data[offsets[pairs] + depth] == data[offsets[pairs - 1] + depth]
        pairs = pairs[same]
        depth += 1
        shared[pairs] = depth
    return shared


def _link(depth: NDArray[np.int16]) -> tuple[Int32, Int32]:
    """Parents and subtree ends of nodes numbered depth first."""
    nodes = len(depth)
    level_node = np.argsort(depth, kind="stable").astype(np.int32)
    levels = np.searchsorted(depth[level_node], np.arange(int(depth.max()) + 2)).tolist()
    parent = np.full(nodes, DEAD, dtype=np.int32)
    end = np.full(nodes, nodes, dtype=np.int32)
    for above, here, below in zip(levels, levels[1:], levels[2:], strict=False):
        upper, mine = level_node[above:here], level_node[here:below]
        parents = upper[np.searchsorted(upper, mine) - 1]
        # A node ends where its next sibling begins, and the last sibling with its parent.
        ends = end[parents]
        siblings = np.flatnonzero(parents[1:] == parents[:-1])
        ends[siblings] = mine[siblings + 1]
        parent[mine], end[mine] = parents, ends
    return parent, end


def _ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> NDArray[Any]:
    """start, start + 1, ... count numbers for each pair, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - counts), counts) + np.arange(total, dtype=starts.dtype)
