"""Which tokens spell listed property names, for any set of names that may still come.

Few bytes go on within a name, so that the tree of the names and the vocabulary's trie are walked
together step by step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from model.constraints.names import NameNode, NameTrie
from model.constraints.profiles import Profile
from model.constraints.suffixes import Ends, Suffixes
from model.constraints.trie import Trie

Spelling = tuple[bytes, ...]
"""Per byte the bytes it may be."""

_QUOTE = ord('"')
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')
"""Characters that are written as themselves, in one byte."""
_SHORT = {ord(c): letter.encode() for c, letter in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)}


@dataclass
class NameProfile:
    """Below a node of the vocabulary's trie, with the names read up to a node of theirs.

    within  a node of the vocabulary's trie within a name, and the bit set of the names that it may
            mean
    after   a node just after a closing quote, and the index of the name
    longer  the index of a name, and the tokens that go on after its closing quote
    ended   the bit set of the names in `after`
    """

    within: list[tuple[int, int]] = field(default_factory=list)
    after: list[tuple[int, int]] = field(default_factory=list)
    longer: list[tuple[int, Ends]] = field(default_factory=list)
    ended: int = 0


class NameProfiles:
    """The name profiles of one vocabulary for one trie of names."""

    def __init__(self, trie: Trie, suffixes: Suffixes, names: NameTrie) -> None:
        self._trie, self._suffixes, self._names = trie, suffixes, names
        self._kept: dict[tuple[NameNode, int], NameProfile] = {}
        self._kept_among: dict[tuple[NameNode, int], NameProfile] = {}

    def get(self, name_node: NameNode, node: int) -> NameProfile:
        """Below `node` of the vocabulary's trie, with the names read up to `name_node`."""
        key = (name_node, node)
        if key not in self._kept:
            self._kept[key] = self._build(name_node, node)
        return self._kept[key]

    def among(self, anything: Profile, name_node: NameNode, node: int) -> NameProfile:
        """The same without `within`: only where names end, of all texts that a string may hold."""
        key = (name_node, node)
        if key not in self._kept_among:
            found = NameProfile()
            for index, rest in self._names.rests(name_node):
                for exit_ in anything.exits_of(self._trie, (rest,)):
                    self._end(index, exit_, found)
            self._kept_among[key] = found
        return self._kept_among[key]

    @property
    def nbytes(self) -> int:
        within = sum(300 + 100 * len(each.within) for each in self._kept.values())
        return within + 400 * len(self._kept_among)

    def _build(self, name_node: NameNode, node: int) -> NameProfile:
        found = NameProfile()
        pending = [(name_node, node)]
        while pending:
            name_node, node = pending.pop()
            children = self._trie.children(node)
            if not children:
                continue
            index = self._names.index(name_node)
            if index >= 0 and _QUOTE in children:
                self._end(index, children[_QUOTE], found)
            following = self._names.children(name_node)
            for byte in following.keys() & children.keys() & _PLAIN:
                name_child, child = following[byte], children[byte]
                found.within.append((child, self._names.reach(name_child)))
                pending.append((name_child, child))
            if self._names.has_escapes:
                self._spell_others(following, node, found, pending)
        return found

    def _spell_others(
        self,
        following: dict[int, NameNode],
        node: int,
        found: NameProfile,
        pending: list[tuple[NameNode, int]],
    ) -> None:
        """Goes on with the characters that are not one byte which stands for itself."""
        for code_point in following.keys() - _PLAIN:
            name_child = following[code_point]
            for spelling in spellings(code_point):
                for child, is_whole in self._spell(spelling, node):
                    found.within.append((child, self._names.reach(name_child)))
                    if is_whole:
                        pending.append((name_child, child))

    def _end(self, index: int, after: int, found: NameProfile) -> None:
        found.after.append((after, index))
        found.ended |= 1 << index
        if self._trie.children(after):
            found.longer.append((index, self._suffixes.ends_below(after)))

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
    """The ways to write a character that is not plain, but for escapes that nobody needs."""
    raw: Spelling = tuple(bytes([byte]) for byte in chr(code_point).encode())
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
