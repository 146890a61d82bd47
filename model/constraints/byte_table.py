"""Automata over code points as transition tables over the bytes of their UTF-8."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.constraints.dfa import Dfa
from model.constraints.shapes import NameTrie
from model.constraints.trie import DEAD

Edges = tuple[tuple[int, int, int], ...]

# (lead byte range, bits the lead byte holds, continuation bytes, least code point)
_LEADS = (
    (range(0xC2, 0xE0), 0x1F, 1, 0x80),
    (range(0xE0, 0xF0), 0x0F, 2, 0x800),
    (range(0xF0, 0xF5), 0x07, 3, 0x10000),
)
_KEPT_TABLES = 256


@dataclass(frozen=True, eq=False)
class ByteTable:
    """`text` int32 [states, 256]: the next state or DEAD.

    States below `whole` are those of the automaton, between characters; the others are within one,
    and `targets[s - whole]` are the automaton's states that its end may lead to.
    """

    text: NDArray[np.int32]
    whole: int
    targets: tuple[tuple[int, ...], ...]

    @cached_property
    def json(self) -> NDArray[np.int32]:
        """The same for raw characters of a JSON string: no quote, backslash or control byte."""
        table = self.text.copy()
        table[:, :0x20] = DEAD
        table[:, (ord('"'), ord("\\"))] = DEAD
        return table


_tables: OrderedDict[Dfa, ByteTable] = OrderedDict()


def table_of(dfa: Dfa) -> ByteTable:
    """The table of an automaton; the last ones used are kept."""
    found = _tables.get(dfa)
    if found is None:
        found = _tables[dfa] = _build(dfa.edges)
        while len(_tables) > _KEPT_TABLES:
            _tables.popitem(last=False)
    return found


def table_of_names(trie: NameTrie) -> ByteTable:
    """The table of listed property names; the trie's nodes are its whole states."""
    return _build(
        [tuple((c, c, child) for c, child in sorted(node.items())) for node in trie.children]
    )


def _build(rows: Sequence[Edges]) -> ByteTable:
    numbers: dict[tuple[int, Edges], int] = {}
    partial: list[tuple[int, Edges]] = []

    def state_of(rest: int, block: Edges) -> int:
        """The state that has `rest` bytes to come, of a block of 64 ** rest code points from 0."""
        key = (rest, block)
        if key not in numbers:
            numbers[key] = len(rows) + len(partial)
            partial.append(key)
        return numbers[key]

    found: list[Mapping[tuple[int, int], int]] = []
    for edges in rows:
        cells = {(lo, min(hi, 0x7F)): to for lo, hi, to in edges if lo < 0x80}
        if edges and edges[-1][1] >= 0x80:
            for leads, bits, rest, least in _LEADS:
                size = 64**rest
                for lead in leads:
                    base = (lead & bits) * size
                    block = _cut(edges, max(base, least), base + size, base)
                    if block:
                        cells[lead, lead] = state_of(rest, block)
        found.append(cells)
    for rest, block in partial:  # grows while it is read
        size = 64 ** (rest - 1)
        cells = {}
        for byte in range(64):
            if part := _cut(block, byte * size, (byte + 1) * size, byte * size):
                to = part[0][2] if rest == 1 else state_of(rest - 1, part)
                cells[0x80 + byte, 0x80 + byte] = to
        found.append(cells)
    targets = tuple(tuple(dict.fromkeys(edge[2] for edge in block)) for _, block in partial)
    return ByteTable(_fill(found), len(rows), targets)


def _cut(edges: Edges, start: int, end: int, base: int) -> Edges:
    """The edges within start .. end - 1, counted from `base`."""
    return tuple(
        (max(lo, start) - base, min(hi, end - 1) - base, to)
        for lo, hi, to in edges
        if lo < end and hi >= start
    )


def _fill(found: Iterable[Mapping[tuple[int, int], int]]) -> NDArray[np.int32]:
    rows = list(found)
    table = np.full((len(rows), 256), DEAD, dtype=np.int32)
    for row, cells in zip(table, rows, strict=True):
        for (lo, hi), to in cells.items():
            row[lo : hi + 1] = to
    return table
