"""A prefix tree over token byte strings, and walks of it under a byte automaton.

Nodes are numbered depth first over the sorted tokens, so a subtree is a range of nodes and the
tokens below a node are a slice of `token_ids`. A second numbering, level by level, makes the
children of neighbours neighbours too, which is what the vectorised walk needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

DEAD = -1

Int32 = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Trie:
    """The arrays of a trie of `nodes` nodes; node 0 is the root.

    byte        uint8 [nodes]      the edge into the node
    parent      int32 [nodes]      the root's parent is -1
    depth       int16 [nodes]      bytes from the root
    end         int32 [nodes]      one past the node's last descendant
    first_token int32 [nodes + 1]  tokens ending at n: token_ids[first_token[n]:first_token[n + 1]]
    token_ids   int32 [tokens]     ids in the order of their bytes; equal bytes stay together
    level_node  int32 [nodes]      level position -> node
    level_child int32 [nodes + 1]  level position -> level position of its first child
    levels      int32 [levels + 1] level position where each depth begins
    """

    byte: NDArray[np.uint8]
    parent: Int32
    depth: NDArray[np.int16]
    end: Int32
    first_token: Int32
    token_ids: Int32
    level_node: Int32
    level_child: Int32
    levels: Int32
    level_byte: NDArray[np.uint8]
    level_of: Int32
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
        place = int(self.level_of[node])
        family = slice(int(self.level_child[place]), int(self.level_child[place + 1]))
        return dict(
            zip(self.level_byte[family].tolist(), self.level_node[family].tolist(), strict=True)
        )

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

    def tokens_of(self, nodes: NDArray[np.integer]) -> Int32:
        """The ids of the tokens that end at any of `nodes`."""
        starts = self.first_token[nodes]
        return self.token_ids[_ranges(starts, self.first_token[nodes + 1] - starts)]

    def walk(
        self, table: NDArray[np.integer], start: int, node: int = 0
    ) -> tuple[Int32, Int32]:
        """The live nodes from `node` (included) on, and each one's automaton state.

        `table` [states, 256] gives the next state or DEAD; the automaton is in `start` at `node`.
        Work is proportional to the live nodes and their children. Nodes come level by level.
        """
        flat = np.ascontiguousarray(table).reshape(-1)
        places = self.level_of[node : node + 1]
        states = np.array([start], dtype=np.int32)
        walked, reached = [places], [states]
        while True:
            starts = self.level_child[places]
            counts = self.level_child[places + 1] - starts
            places = _ranges(starts, counts)
            edges = np.repeat(states << 8, counts) | self.level_byte[places]
            states = flat.take(edges).astype(np.int32, copy=False)
            live = np.flatnonzero(states >= 0)
            if not len(live):
                break
            if len(live) < len(states):
                places, states = places.take(live), states.take(live)
            walked.append(places)
            reached.append(states)
        return self.level_node[np.concatenate(walked)], np.concatenate(reached)


def walk_table(trie: Trie, table: NDArray[np.integer], start: int, node: int = 0) -> Int32:
    """int32 [nodes]: the state `table` is in at each node below `node`, DEAD elsewhere."""
    nodes, states = trie.walk(table, start, node)
    state_at_node = np.full(trie.nodes, DEAD, dtype=np.int32)
    state_at_node[nodes] = states
    return state_at_node


def build_trie(tokens: Sequence[bytes]) -> Trie:
    """The trie of the non-empty `tokens`; a token's id is its position."""
    order = sorted((i for i, token in enumerate(tokens) if token), key=tokens.__getitem__)
    ordered = [tokens[i] for i in order]
    lengths = np.fromiter(map(len, ordered), dtype=np.int64, count=len(ordered))
    data = np.frombuffer(b"".join(ordered) + b"\0", dtype=np.uint8)
    offsets = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    shared = _shared_prefixes(data, offsets, lengths)

    fresh = lengths - shared  # token i adds the nodes of depths shared[i] + 1 .. lengths[i]
    last = np.cumsum(fresh)  # the node where token i ends; equal tokens add no node
    nodes = int(fresh.sum()) + 1
    steps = _ranges(np.zeros_like(fresh), fresh)
    depth = np.concatenate(([0], np.repeat(shared, fresh) + steps + 1))
    byte = np.concatenate(([0], data[np.repeat(offsets + shared, fresh) + steps]))
    first_token = np.searchsorted(last, np.arange(nodes + 1))
    return _link(
        byte.astype(np.uint8),
        depth.astype(np.int16),
        first_token.astype(np.int32),
        np.array(order, dtype=np.int32),
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


def _link(
    byte: NDArray[np.uint8], depth: NDArray[np.int16], first_token: Int32, token_ids: Int32
) -> Trie:
    """Adds parents, subtree ends and the level numbering to nodes numbered depth first."""
    nodes = len(byte)
    level_node = np.argsort(depth, kind="stable").astype(np.int32)
    levels = np.searchsorted(depth[level_node], np.arange(int(depth.max()) + 2)).astype(np.int32)
    level_of = np.empty(nodes, dtype=np.int32)
    level_of[level_node] = np.arange(nodes, dtype=np.int32)

    parent = np.full(nodes, DEAD, dtype=np.int32)
    end = np.full(nodes, nodes, dtype=np.int32)
    for above, here, below in zip(levels, levels[1:], levels[2:], strict=False):
        mine, upper = level_node[here:below], level_node[above:here]
        parent[mine] = upper[np.searchsorted(upper, mine) - 1]
        # A node ends where its next sibling begins, and the last sibling with its parent.
        end[mine] = end[parent[mine]]
        siblings = np.flatnonzero(parent[mine[1:]] == parent[mine[:-1]])
        end[mine[siblings]] = mine[siblings + 1]

    level_parent = level_of[parent[level_node[1:]]]
    level_child = 1 + np.searchsorted(level_parent, np.arange(nodes + 1))
    return Trie(
        byte=byte,
        parent=parent,
        depth=depth,
        end=end,
        first_token=first_token,
        token_ids=token_ids,
        level_node=level_node,
        level_child=level_child.astype(np.int32),
        levels=levels,
        level_byte=byte[level_node],
        level_of=level_of,
    )


def _ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> NDArray[np.integer]:
    """start, start + 1, ... count numbers for each pair, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - counts), counts) + np.arange(total, dtype=starts.dtype)
