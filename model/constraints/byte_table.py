"""Automata over code points as transition tables over bytes: of plain UTF-8, and of JSON strings.

table_of(dfa).text   the bytes of a text
table_of(dfa).json   the bytes between the quotes of a JSON string, escapes included
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.constraints.dfa import Dfa
from model.constraints.trie import DEAD

Cells = dict[tuple[int, int], "int | Partial"]
"""What follows the bytes from a low to a high one: a whole state, or a partial one."""
Edges = tuple[tuple[int, int, "int | Low"], ...]

# (lead byte of code point 0, bytes that follow it, least code point, one past the last)
_LEADS = ((0xC0, 1, 0x80, 0x800), (0xE0, 2, 0x800, 0x10000), (0xF0, 3, 0x10000, 0x110000))
_ESCAPES = {ord(letter): ord(c) for letter, c in zip('"\\bfnrt', '"\\\b\f\n\r\t', strict=True)}
_HIGH, _LOW, _ASTRAL, _BLOCK = 0xD800, 0xDC00, 0x10000, 0x400
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_KEPT_TABLES = 256


@dataclass(frozen=True, eq=False)
class ByteTable:
    """`next` int32 [states, 256]: the next state or DEAD.

    States below `whole` are those of the automaton, between characters; the others are within one,
    and `targets[s - whole]` are the automaton's states that its end may lead to.
    """

    next: NDArray[np.int32]
    whole: int
    targets: tuple[tuple[int, ...], ...]

    def after(self, state: int, text: bytes) -> int:
        """The state after more bytes, or DEAD."""
        for byte in text:
            state = int(self.next[state, byte])
        return state


@dataclass(frozen=True, eq=False)
class ByteTables:
    """The tables of one automaton, made when they are needed."""

    rows: Sequence[Edges]

    @cached_property
    def text(self) -> ByteTable:
        return _build([_characters(edges) for edges in self.rows])

    @cached_property
    def json(self) -> ByteTable:
        if all(_is_plain(lo, hi) for edges in self.rows for lo, hi, _ in edges):
            return _plain(self.rows)
        return _build([_in_json(edges) for edges in self.rows])


_tables: OrderedDict[Dfa, ByteTables] = OrderedDict()


def table_of(dfa: Dfa) -> ByteTables:
    """The tables of an automaton; the last ones used are kept."""
    found = _tables.get(dfa)
    if found is None:
        found = _tables[dfa] = ByteTables(dfa.edges)
        while len(_tables) > _KEPT_TABLES:
            _tables.popitem(last=False)
    return found


class Partial:
    """A place within a character. Equal ones are one state."""

    def cells(self) -> Cells:
        raise NotImplementedError


@dataclass(frozen=True)
class Rest(Partial):
    """`count` more bytes of UTF-8, for a block of 64 ** count code points from 0."""

    count: int
    block: Edges

    def cells(self) -> Cells:
        found: Cells = {}
        for first, last, edges in _blocks(self.block, 64 ** (self.count - 1)):
            to = edges[0][2] if self.count == 1 else Rest(self.count - 1, edges)
            found[0x80 + first, 0x80 + last] = to
        return found


@dataclass(frozen=True)
class Escape(Partial):
    """After the backslash of an escape that stands for a character of the edges."""

    edges: Edges

    def cells(self) -> Cells:
        found: Cells = {}
        for letter, character in _ESCAPES.items():
            for _, _, to in _cut(self.edges, character, character + 1, 0):
                found[letter, letter] = to
        if units := _units(self.edges):
            found[ord("u"), ord("u")] = Hex(4, units)
        return found


@dataclass(frozen=True)
class Hex(Partial):
    """`digits` more hexadecimal digits, for a block of 16 ** digits UTF-16 units from 0."""

    digits: int
    units: Edges

    def cells(self) -> Cells:
        found: Cells = {}
        for first, last, units in _blocks(self.units, 16 ** (self.digits - 1)):
            to = units[0][2] if self.digits == 1 else Hex(self.digits - 1, units)
            for part in range(first, last + 1):
                for digit in {f"{part:x}", f"{part:X}"}:
                    found[ord(digit), ord(digit)] = to
        return found


@dataclass(frozen=True)
class Low(Partial):
    """Before `text` and the digits of a low surrogate, for a block of 1,024 code points from 0."""

    text: bytes
    block: Edges

    def cells(self) -> Cells:
        rest = self.text[1:]
        units = tuple((lo + _LOW, hi + _LOW, to) for lo, hi, to in self.block)
        return {(self.text[0],) * 2: Low(rest, self.block) if rest else Hex(4, units)}


def _characters(edges: Edges) -> Cells:
    """The cells of a whole state, for plain UTF-8."""
    found: Cells = {(lo, min(hi, 0x7F)): to for lo, hi, to in edges if lo < 0x80}
    for lead, rest, least, end in _LEADS if edges and edges[-1][1] >= 0x80 else ():
        for first, last, block in _blocks(_cut(edges, least, end, 0), 64**rest):
            found[lead + first, lead + last] = Rest(rest, block)
    return found


def _in_json(edges: Edges) -> Cells:
    """The cells of a whole state within a JSON string: no raw quote, backslash or control byte."""
    if all(_is_plain(lo, hi) for lo, hi, _ in edges):
        return {(lo, hi): to for lo, hi, to in edges}
    found = _characters(tuple(_without(edges, ((0, 0x1F), (_QUOTE,) * 2, (_BACKSLASH,) * 2))))
    escape = Escape(edges)
    if escape.cells():
        found[_BACKSLASH, _BACKSLASH] = escape
    return found


def _is_plain(low: int, high: int) -> bool:
    """Whether the characters are printable ASCII, never escaped."""
    has_special = low <= _QUOTE <= high or low <= _BACKSLASH <= high
    return low >= 0x20 and high < 0x7F and not has_special


def _units(edges: Edges) -> Edges:
    """The UTF-16 units that begin a character of the edges and may be written as `\\uXXXX`.

    Printable ASCII is not: nobody needs to. High surrogates lead to the low ones.
    """
    units = list(_without(_cut(edges, 0, _ASTRAL, 0), ((0x20, 0x7E),)))
    astral = _cut(edges, _ASTRAL, 0x110000, _ASTRAL)
    for first, last, block in _blocks(astral, _BLOCK):
        units.append((_HIGH + first, _HIGH + last, Low(b"\\u", block)))
    return tuple(sorted(units, key=lambda edge: edge[0]))


def _without(
    edges: Edges, holes: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, int | Low]]:
    """The edges outside the sorted holes."""
    for lo, hi, to in edges:
        for first, last in holes:
            if lo > last or hi < first:
                continue
            if lo < first:
                yield lo, first - 1, to
            lo = last + 1
        if lo <= hi:
            yield lo, hi, to


def _cut(edges: Edges, start: int, end: int, base: int) -> Edges:
    """The edges within start .. end - 1, counted from `base`."""
    return tuple(
        (max(lo, start) - base, min(hi, end - 1) - base, to)
        for lo, hi, to in edges
        if lo < end and hi >= start
    )


def _blocks(edges: Edges, size: int) -> Iterator[tuple[int, int, Edges]]:
    """Runs of equal blocks of `size`: first and last block, and its edges from its own start."""
    split: set[int] = set()  # blocks that no one edge fills
    for lo, hi, to in edges:
        first, last = -(-lo // size), (hi + 1) // size - 1
        if first <= last:
            yield first, last, ((0, size - 1, to),)
        split |= {lo // size} if lo % size else set()
        split |= {hi // size} if (hi + 1) % size else set()
    for block in split:
        yield block, block, _cut(edges, block * size, (block + 1) * size, block * size)


def _plain(rows: Sequence[Edges]) -> ByteTable:
    """Where every character is one byte that stands for itself."""
    table = np.full((len(rows), 256), DEAD, dtype=np.int32)
    for row, edges in zip(table, rows, strict=True):
        for lo, hi, to in edges:
            assert isinstance(to, int)
            row[lo : hi + 1] = to
    return ByteTable(table, len(rows), ())


def _build(rows: Sequence[Cells]) -> ByteTable:
    numbers: dict[Partial, int] = {}
    partial: list[Partial] = []

    def state_of(to: int | Partial) -> int:
        if isinstance(to, int):
            return to
        if to not in numbers:
            numbers[to] = len(rows) + len(partial)
            partial.append(to)
        return numbers[to]

    found = [_numbered(cells, state_of) for cells in rows]
    found += [_numbered(each.cells(), state_of) for each in partial]  # grows while it is read
    targets = _targets(found, len(rows))
    table = np.full((len(found), 256), DEAD, dtype=np.int32)
    for row, cells in zip(table, found, strict=True):
        for (lo, hi), to in cells.items():
            row[lo : hi + 1] = to
    return ByteTable(table, len(rows), targets)


def _numbered(
    cells: Cells, state_of: Callable[[int | Partial], int]
) -> Mapping[tuple[int, int], int]:
    return {span: state_of(to) for span, to in cells.items()}


def _targets(
    rows: Sequence[Mapping[tuple[int, int], int]], whole: int
) -> tuple[tuple[int, ...], ...]:
    """Per partial state the whole states it may lead to; no partial state leads to itself."""
    found: dict[int, tuple[int, ...]] = {state: (state,) for state in range(whole)}

    def of(state: int) -> tuple[int, ...]:
        if state not in found:
            following = dict.fromkeys(rows[state].values())
            found[state] = tuple(dict.fromkeys(t for each in following for t in of(each)))
        return found[state]

    return tuple(of(state) for state in range(whole, len(rows)))
