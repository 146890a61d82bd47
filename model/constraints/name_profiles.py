"""Which tokens spell listed property names, for any set of names that may still come.

Few bytes go on within a name, so that the tree of the names and the vocabulary's trie are walked
together step by step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from model.constraints.shapes import NameTrie
from model.constraints.suffixes import Ends, Suffixes
from model.constraints.trie import Trie

Spelling = tuple[bytes, ...]
"""Per byte the bytes it may be."""

_QUOTE = ord('"')
_SHORT = {ord(c): letter.encode() for c, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)}


@dataclass(frozen=True)
class NameProfile:
    """Below a node of the vocabulary's trie, with the names read up to a node of theirs.

    nodes   a node of the vocabulary's trie within a name, or just after its closing quote, with
            the bit set of the names that it may mean
    longer  the index of a name, and the tokens that go on after its closing quote
    """

    nodes: list[tuple[int, int]] = field(default_factory=list)
    longer: list[tuple[int, Ends]] = field(default_factory=list)


class NameProfiles:
    """The name profiles of one vocabulary for one trie of names."""

    def __init__(self, trie: Trie, suffixes: Suffixes, names: NameTrie) -> None:
        self._trie, self._suffixes, self._names = trie, suffixes, names
        self._kept: dict[tuple[int, int], NameProfile] = {}

    def get(self, name_node: int, node: int) -> NameProfile:
        """Below `node` of the vocabulary's trie, with the names read up to `name_node`."""
        key = (name_node, node)
        if key not in self._kept:
            self._kept[key] = self._build(name_node, node)
        return self._kept[key]

    @property
    def nbytes(self) -> int:
        return sum(300 + 100 * len(each.nodes) for each in self._kept.values())

    def _build(self, name_node: int, node: int) -> NameProfile:
        found = NameProfile()
        pending = [(name_node, node)]
        while pending:
            name_node, node = pending.pop()
            children = self._trie.children(node)
            if not children:
                continue
            index = self._names.name[name_node]
            if index >= 0 and _QUOTE in children:
                self._end(index, children[_QUOTE], found)
            for code_point, name_child in self._names.children[name_node].items():
                reach = self._names.reach[name_child]
                for spelling in spellings(code_point):
                    for child, is_whole in self._spell(spelling, node):
                        found.nodes.append((child, reach))
                        if is_whole:
                            pending.append((name_child, child))
        return found

    def _end(self, index: int, after: int, found: NameProfile) -> None:
        found.nodes.append((after, 1 << index))
        if self._trie.children(after):
            ends = self._suffixes.ends_at(np.array([after], dtype=np.int32))
            found.longer.append((index, ends))

    def _spell(self, spelling: Spelling, node: int) -> Iterator[tuple[int, bool]]:
        """The nodes on the way, and whether the character is complete there."""
        nodes = [node]
        for place, choices in enumerate(spelling, start=1):
            nodes = [
                children[byte]
                for children in map(self._trie.children, nodes)
                for byte in choices
                if byte in children
            ]
            for reached in nodes:
                yield reached, place == len(spelling)


@lru_cache(maxsize=4096)
def spellings(code_point: int) -> tuple[Spelling, ...]:
    """The ways to write a character in a JSON string, but for escapes that nobody needs."""
    raw: Spelling = tuple(bytes([byte]) for byte in chr(code_point).encode())
    if 0x20 <= code_point < 0x7F and code_point not in _SHORT:
        return (raw,)
    found = [raw] if code_point >= 0x7F else []
    if code_point in _SHORT:
        found.append((b"\\", _SHORT[code_point]))
    if not 0x20 <= code_point < 0x7F:
        units = chr(code_point).encode("utf-16-be")
        found.append(
            tuple(
                choices
                for at in range(0, len(units), 2)
                for choices in (b"\\", b"u", *_hex(units[at : at + 2]))
            )
        )
    return tuple(found)


def _hex(unit: bytes) -> Iterator[bytes]:
    for digit in unit.hex():
        yield f"{digit}{digit.upper()}".encode() if digit.isalpha() else digit.encode()
