"""The listed property names of an object as a trie, made where it is walked."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakValueDictionary

NameNode = tuple[int, int]
"""The first name that goes through the node, and the code points read."""

ROOT: NameNode = (0, 0)


class NameTrie:
    """Property names over code points.

    Most objects list far more names than a row spells, so that a node's children are made when they
    are first asked for. Several threads may ask at once: they make the same.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._index = {name: index for index, name in enumerate(names)}
        self._below: dict[NameNode, list[int]] = {ROOT: list(range(len(names)))}
        self._reach = {ROOT: (1 << len(names)) - 1}
        self._children: dict[NameNode, dict[int, NameNode]] = {}
        self.has_escapes = any(_may_be_escaped(character) for character in set("".join(names)))
        """Whether some name has a character that may be written with an escape."""

    def children(self, node: NameNode) -> dict[int, NameNode]:
        """The nodes one code point further on. Do not change it."""
        found = self._children.get(node)
        if found is None:
            found = self._children[node] = self._find_children(node)
        return found

    def _find_children(self, node: NameNode) -> dict[int, NameNode]:
        read = node[1]
        below: dict[str, list[int]] = {}
        for index in self._below[node]:
            name = self.names[index]
            if len(name) > read:
                below.setdefault(name[read], []).append(index)
        found: dict[int, NameNode] = {}
        for character, indices in below.items():
            child = found[ord(character)] = (indices[0], read + 1)
            self._below[child], self._reach[child] = indices, _bit_set(indices)
        return found

    def index(self, node: NameNode) -> int:
        """The index of the name that ends at the node, or -1."""
        first, read = node
        return self._index.get(self.names[first][:read], -1) if self.names else -1

    def reach(self, node: NameNode) -> int:
        """The bit set of the names at and below the node."""
        return self._reach[node]

    def reach_between(self, node: NameNode, low: int, high: int) -> int:
        """The bit set of the names that go on from the node with a character from low to high."""
        found = 0
        for code_point, child in self.children(node).items():
            if low <= code_point <= high:
                found |= self._reach[child]
        return found

    def rests(self, node: NameNode) -> Iterator[tuple[int, str]]:
        """The names at and below the node: index, and what is still to come."""
        read = node[1]
        for index in self._below[node]:
            yield index, self.names[index][read:]


_tries: WeakValueDictionary[tuple[str, ...], NameTrie] = WeakValueDictionary()


def name_trie(names: tuple[str, ...]) -> NameTrie:
    """One trie for all shapes with the same names: a union may have hundreds of those."""
    found = _tries.get(names)
    return _tries.setdefault(names, NameTrie(names)) if found is None else found


def _bit_set(indices: list[int]) -> int:
    found = 0
    for index in indices:
        found |= 1 << index
    return found


def _may_be_escaped(character: str) -> bool:
    return not " " <= character <= "~" or character in '"\\'
