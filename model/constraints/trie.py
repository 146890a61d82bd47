"""A prefix tree over token byte strings, and walks of it under a byte automaton.

Nodes are numbered depth first over the sorted tokens, so a subtree is a range of nodes and the
tokens below a node are a slice of `token_ids`. A second numbering, level by level, makes the
children of neighbours neighbours too, which is what the vectorised walk needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

trie_walk: ModuleType | None
try:
    from model.constraints import trie_walk
except ImportError:  # numba does not know this Python or numpy yet: numpy alone does the same
    trie_walk = None

DEAD = -1
_DENSE = 4  # a level is walked whole when at least one node in so many of its span is live
_SPARE = 8  # dead nodes are carried along while they are less than one in so many

Int32 = NDArray[np.int32]


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
    level_node   int32 [nodes]      level position -> node
    level_of     int32 [nodes]      node -> level position
    level_byte   uint8 [nodes]      level position -> the edge into the node
    level_parent int32 [nodes]      level position -> level position of its parent
    level_child  int32 [nodes + 1]  level position -> level position of its first child
    levels       one more than the longest token's bytes
    """

    byte: NDArray[np.uint8]
    parent: Int32
    depth: NDArray[np.int16]
    end: Int32
    first_token: Int32
    token_ids: Int32
    token_node: Int32
    level_node: Int32
    level_of: Int32
    level_byte: NDArray[np.uint8]
    level_parent: Int32
    level_child: Int32
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
        if trie_walk is not None and nodes.dtype == np.int32:
            found: Int32 = trie_walk.gather(self.first_token, self.token_ids, nodes)
            return found
        starts = self.first_token[nodes]
        return self.token_ids.take(_ranges(starts, self.first_token[nodes + 1] - starts))

    def walk(self, table: NDArray[np.integer], start: int, node: int = 0) -> tuple[Int32, Int32]:
        """The live nodes from `node` (included) on, and each one's automaton state.

        `table` int32 [states, 256] gives the next state or DEAD; the automaton is in `start` at
        `node`. Work is proportional to the live nodes and their children. Nodes come in no
        particular order.
        """
        if trie_walk is None:
            return self.walk_by_level(table, start, node)
        found: tuple[Int32, Int32] = trie_walk.walk(
            self.byte, self.depth, self.end, self.levels, table, start, node
        )
        return found

    def walk_mask(self, table: NDArray[np.integer], start: int, mask: Int32, node: int = 0) -> None:
        """Adds the tokens that end at the walk's live nodes below `node` to a packed mask."""
        if trie_walk is None:
            nodes, _ = self.walk_by_level(table, start, node)
            tokens = self.tokens_of(nodes[nodes != node])
            np.bitwise_or.at(mask, tokens >> 5, np.int32(1) << (tokens & 31))
            return
        trie_walk.walk_mask(
            self.byte,
            self.depth,
            self.end,
            self.first_token,
            self.token_ids,
            self.levels,
            table,
            start,
            mask,
            node,
        )

    def walk_by_level(
        self, table: NDArray[np.integer], start: int, node: int = 0
    ) -> tuple[Int32, Int32]:
        """`walk` in numpy alone, for machines without numba."""
        flat = np.ascontiguousarray(table).reshape(-1)
        places = self.level_of[node : node + 1]
        states = np.array([start], dtype=np.int32)
        walked, reached = [places], [states]
        while len(places):
            places, states = _without_dead(*self._step(flat, places, states), _SPARE)
            walked.append(places)
            reached.append(states)
        places, states = _without_dead(np.concatenate(walked), np.concatenate(reached))
        return self.level_node.take(places), states

    def _step(self, flat: NDArray[np.integer], places: Int32, states: Int32) -> tuple[Int32, Int32]:
        """The children of nodes of one level, given by level position, and their states."""
        first, last = int(places[0]), int(places[-1])
        if last - first < _DENSE * len(places):
            span = slice(int(self.level_child[first]), int(self.level_child[last + 1]))
            children = np.arange(span.start, span.stop, dtype=np.int32)
            above = _spread(places, states, first, last).take(self.level_parent[span] - first)
            edges = self.level_byte[span] | (above << 8)
        else:
            starts = self.level_child.take(places)
            counts = self.level_child.take(places + 1) - starts
            children = _ranges(starts, counts)
            above = np.repeat(states, counts)
            edges = self.level_byte.take(children) | (above << 8)
        below = flat.take(edges, mode="clip").astype(np.int32, copy=False)
        below[above < 0] = DEAD  # their edges were clipped to a place that is not theirs
        return children, below


def warm_up() -> None:
    """Makes the compiled walks ready, so that the first row does not wait for them."""
    if trie_walk is not None:
        trie_walk.warm_up()


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
    parent, end, level_node = _link(depth)

    level_of = np.empty(nodes, dtype=np.int32)
    level_of[level_node] = np.arange(nodes, dtype=np.int32)
    level_parent = level_of[parent[level_node]]
    level_parent[0] = DEAD
    level_child = 1 + np.searchsorted(level_parent[1:], np.arange(nodes + 1)).astype(np.int32)
    return Trie(
        byte=byte,
        parent=parent,
        depth=depth,
        end=end,
        first_token=first_token,
        token_ids=token_ids,
        token_node=token_node,
        level_node=level_node,
        level_of=level_of,
        level_byte=byte[level_node],
        level_parent=level_parent,
        level_child=level_child,
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


def _link(depth: NDArray[np.int16]) -> tuple[Int32, Int32, Int32]:
    """Parents and subtree ends of nodes numbered depth first, and the nodes level by level."""
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
    return parent, end, level_node


def _spread(places: Int32, states: Int32, first: int, last: int) -> Int32:
    """The states of positions first..last, DEAD where `places` has a gap."""
    if len(places) == last - first + 1:
        return states
    spread = np.full(last - first + 1, DEAD, dtype=np.int32)
    spread[places - first] = states
    return spread


def _without_dead(places: Int32, states: Int32, spare: int = 0) -> tuple[Int32, Int32]:
    """Drops the dead, unless they are less than one in `spare`."""
    live = states >= 0
    dead = len(states) - np.count_nonzero(live)
    if dead == 0 or 0 < dead * spare < len(states):
        return places, states
    kept = np.flatnonzero(live)
    return places.take(kept), states.take(kept)


def _ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> NDArray[Any]:
    """start, start + 1, ... count numbers for each pair, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - counts), counts) + np.arange(total, dtype=starts.dtype)
