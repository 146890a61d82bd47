"""Transition tables over code point intervals: overlay, trim, minimise and number them.

A row is one state's edges `(lo, hi, target)`, both ends included, sorted and disjoint. A table is a
list of rows with the set of accepting states; state 0 is the start. Everything here is iterative.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Edge = tuple[int, int, int]
Row = Sequence[Edge]

MAX_STATES = 20_000
"""States that any one automaton may have, before minimisation too."""
MAX_WORK = 600_000
"""Edges that one operation may walk: about a second of work."""


class EdgeArrays(NamedTuple):
    """A table for machine code.

    begin  int64 [states + 1]  state s has the edges begin[s] .. begin[s + 1] - 1
    edges  int64 [edges, 3]    lo, hi and target of each
    """

    begin: NDArray[np.int64]
    edges: NDArray[np.int64]

    @classmethod
    def of(cls, table: Sequence[Row]) -> EdgeArrays:
        counts = np.fromiter(map(len, table), dtype=np.int64, count=len(table))
        begin = np.concatenate(([0], counts.cumsum())).astype(np.int64)
        numbers = chain.from_iterable(chain.from_iterable(table))
        flat = np.fromiter(numbers, dtype=np.int64, count=3 * int(begin[-1]))
        return cls(begin, flat.reshape(-1, 3))


class TooComplex(Exception):
    """A language needs more states or more work than the bounds allow; the message says which."""


class Budget:
    """What is left of the bounds; spending more raises TooComplex."""

    def __init__(self, max_states: int = MAX_STATES, max_work: int = MAX_WORK) -> None:
        self.max_states, self.max_work, self.left = max_states, max_work, max_work

    def spend(self, work: int) -> None:
        """Pays for `work` edges."""
        self.left -= work
        if self.left < 0:
            raise TooComplex(f"the language needs more than {self.max_work} steps of work")

    def allow(self, states: int) -> None:
        """Checks that an automaton may have this many states."""
        if states > self.max_states:
            raise TooComplex(f"the language needs more than {self.max_states} states")


def common(left: Row, right: Row) -> Iterator[tuple[int, int, int, int]]:
    """Where two rows overlap: `(lo, hi, left target, right target)`."""
    i = j = 0
    while i < len(left) and j < len(right):
        lo, hi = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if lo <= hi:
            yield lo, hi, left[i][2], right[j][2]
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1


def overlay(rows: Sequence[Row]) -> Iterator[tuple[int, int, tuple[int | None, ...]]]:
    """Cuts rows into pieces on which every row is constant: `(lo, hi, target of each row)`."""
    starts = ((lo, index, target) for index, row in enumerate(rows) for lo, _, target in row)
    ends = ((hi + 1, index, None) for index, row in enumerate(rows) for _, hi, _ in row)
    events: list[tuple[int, int, int | None]] = sorted(
        [*starts, *ends], key=lambda event: (event[0], event[2] is not None)
    )
    current: list[int | None] = [None] * len(rows)
    covered, since = 0, 0
    for position, index, target in events:
        if covered and position > since:
            yield since, position - 1, tuple(current)
        since = position
        covered += (target is not None) - (current[index] is not None)
        current[index] = target


def coalesce(row: Iterable[Edge]) -> list[Edge]:
    """Joins neighbouring edges that lead to one target."""
    joined: list[Edge] = []
    last_hi = last_target = -2
    for lo, hi, target in row:
        if target == last_target and lo == last_hi + 1:
            joined[-1] = (joined[-1][0], hi, target)
        else:
            joined.append((lo, hi, target))
        last_hi, last_target = hi, target
    return joined


def predecessors(table: Sequence[Row]) -> list[list[int]]:
    """For each state, the states with an edge to it."""
    sources: list[list[int]] = [[] for _ in table]
    for state, row in enumerate(table):
        for target in {edge[2] for edge in row}:
            sources[target].append(state)
    return sources


def trim(table: Sequence[Row], accepting: Collection[int]) -> list[Row]:
    """Drops every edge to a state from which nothing is accepted."""
    sources = predecessors(table)
    live = set(accepting)
    pending = list(live)
    while pending:
        for source in sources[pending.pop()]:
            if source not in live:
                live.add(source)
                pending.append(source)
    if len(live) == len(table):
        return list(table)
    return [[edge for edge in row if edge[2] in live] for row in table]


def minimise(table: Sequence[Row], accepting: Collection[int]) -> list[int]:
    """The block of each state: two states share one exactly when their languages are equal.

    The table must be trimmed. Blocks are split by the signatures of their states' rows; the
    largest part keeps its number, so a state is renumbered at most log2(n) times.
    """
    block = [int(state in accepting) for state in range(len(table))]
    members: list[set[int]] = [set(), set()]
    for state, number in enumerate(block):
        members[number].add(state)
    sources = predecessors(table)
    dirty: set[int] = set(range(len(table)))
    while dirty:
        moved = _split(_parts(table, block, dirty), block, members)
        dirty = {source for state in moved for source in sources[state]}
    return block


def _parts(
    table: Sequence[Row], block: Sequence[int], dirty: Iterable[int]
) -> dict[int, dict[tuple[int, ...], list[int]]]:
    """The dirty states by block and signature."""
    parts: dict[int, dict[tuple[int, ...], list[int]]] = {}
    for state in dirty:
        in_block = parts.setdefault(block[state], {})
        in_block.setdefault(_signature(table[state], block), []).append(state)
    return parts


def _signature(row: Row, block: Sequence[int]) -> tuple[int, ...]:
    """A row with blocks for targets, joined where neighbours agree, as a flat tuple."""
    flat: list[int] = []
    last_hi = last_block = -2
    for lo, hi, target in row:
        number = block[target]
        if number == last_block and lo == last_hi + 1:
            flat[-2] = hi
        else:
            flat += (lo, hi, number)
        last_hi, last_block = hi, number
    return tuple(flat)


def _split(
    parts: dict[int, dict[tuple[int, ...], list[int]]],
    block: list[int],
    members: list[set[int]],
) -> list[int]:
    """Splits blocks into their parts and returns the states that changed their block.

    The states of a block that are not in `parts` still share one signature, which differs from
    every other: a dirty state's signature holds a number that none of theirs holds.
    """
    moved: list[int] = []
    for number, by_signature in parts.items():
        groups = sorted(by_signature.values(), key=len, reverse=True)
        touched = sum(map(len, groups))
        if touched < len(members[number]):
            if len(members[number]) - touched < len(groups[0]):
                groups.append(list(members[number].difference(*groups)))
            else:
                groups.insert(0, [])
        for group in groups[1:]:
            for state in group:
                block[state] = len(members)
            members[number].difference_update(group)
            members.append(set(group))
            moved += group
    return moved


def number(
    table: Sequence[Row],
    accepting: Collection[int],
    block: Sequence[int],
    spell: Callable[[Row], Iterable[Edge]] | None = None,
) -> tuple[list[list[Edge]], frozenset[int]]:
    """One row a block, numbered breadth first from the start in the order of the intervals.

    `spell` is applied to each row that is kept.
    """
    numbers = {block[0]: 0}
    chosen = [0]
    rows: list[list[Edge]] = []
    for state in chosen:
        row: list[Edge] = []
        for lo, hi, target in spell(table[state]) if spell else table[state]:
            if block[target] not in numbers:
                numbers[block[target]] = len(chosen)
                chosen.append(target)
            row.append((lo, hi, numbers[block[target]]))
        rows.append(coalesce(row))
    return rows, frozenset(index for index, state in enumerate(chosen) if state in accepting)
