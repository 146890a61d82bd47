"""Reads what a thread allows off a tree of bytes: a vocabulary's trie, or its tree of suffixes.

Whitespace and punctuation are read off ready gaps, strings, numbers and names off ready profiles,
and a value is read once however many places it stands in; what is left goes byte by byte, and
there few bytes are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from model.constraints.containers import Array, Colon, Container, KeySlot, Named, Object, Value
from model.constraints.gaps import Gaps, Place, Tree
from model.constraints.name_profiles import NameProfile, NameProfiles
from model.constraints.names import NameTrie
from model.constraints.profiles import ANYTHING, Mask, Profile, Profiles
from model.constraints.shapes import Node, StringLang
from model.constraints.suffixes import Ends, Suffixes
from model.constraints.threads import (
    Done,
    Hole,
    Literal,
    Number,
    Plain,
    Slot,
    String,
    Text,
    Thread,
    Threads,
    Tracked,
)
from model.constraints.trie import Trie

Link = Thread | Callable[[], Thread]
Chain = tuple[Link, ...]
"""Threads that follow each other: each goes on where the one before it has met its hole.

All but the first may be made later, as most tokens end before they matter.
"""

_UNKNOWN = "\x00"  # stands for a text that is not known yet, and equals none that is
_NO_EXITS = frozenset[int]()
_QUOTE, _SPACE = b'" '


@dataclass
class Found:
    """What a walk has found below its start.

    nodes  where tokens may end
    masks  packed masks of more tokens
    ends   tokens in which content ends, if what follows it allows the rest of them
    holes  nodes where the thread has met its hole
    """

    nodes: list[int] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    ends: list[tuple[Chain, Ends]] = field(default_factory=list)
    holes: list[int] = field(default_factory=list)


class Walker:
    """Walks one tree for the threads of one automaton.

    Several threads of the process may walk at once: what is kept is kept only when it is complete.
    """

    tree: Tree
    _visits: ClassVar[dict[type[Thread], Callable[[Any, Any, int, Found], None]]]

    def __init_subclass__(cls) -> None:
        cls._visits = {
            Array: cls._container,
            Object: cls._container,
            Value: cls._value,
            Number: cls._number,
            String: cls._text,
            Text: cls._text,
            Colon: cls._colon,
            Literal: cls._literal,
            Done: cls._step,
        }

    def __init__(self, tree: Tree, gaps: Gaps) -> None:
        self.tree, self._gaps = tree, gaps
        self._values: dict[tuple[Node, int, int], Found] = {}
        self._scalars: dict[Hashable, Node] = {}
        self._first_alike: dict[Node, Node] = {}
        self._places: dict[Container, Place] = {}

    def visit(self, thread: Thread, node: int, found: Found) -> None:
        """Adds what the thread allows below the node."""
        if isinstance(thread, Hole):
            found.holes.append(node)
        elif self.tree.children(node):
            self._visits[type(thread)](self, thread, node, found)

    @property
    def nbytes(self) -> int:
        """An estimate of the memory that is held."""
        return 600 * len(self._values) + 200 * len(self._places)

    def _step(
        self, thread: Thread, node: int, found: Found, first: Collection[int] | None = None
    ) -> None:
        """Tries each byte that both the thread and the tree have."""
        children = self.tree.children(node)
        first = thread.first_bytes if first is None else first
        bytes_ = first if len(children) > 16 and not isinstance(first, range) else children
        for byte in set(bytes_):
            if byte in children and byte in first:
                for after in thread.step(byte):
                    found.nodes.append(children[byte])
                    self.visit(after, children[byte], found)

    def _container(self, thread: Container, node: int, found: Found) -> None:
        gap = self._gaps.get(self._place(thread), node)
        found.nodes += gap.nodes
        for close in gap.closes:
            assert thread.below is not None
            self.visit(thread.below, close, found)
        for begin in gap.begins:
            children = self.tree.children(begin)
            if isinstance(thread, Array):
                for value in thread.values:
                    self._value(value, begin, found)
            elif _QUOTE in children:
                found.nodes.append(children[_QUOTE])
                if self.tree.children(children[_QUOTE]):
                    for key in thread.begin_part(_QUOTE):
                        self.visit(key, children[_QUOTE], found)

    def _place(self, thread: Container) -> Place:
        found = self._places.get(thread)
        if found is None:
            found = self._places[thread] = Place.of(thread)
        return found

    def _colon(self, thread: Colon, node: int, found: Found) -> None:
        if thread.phase == 0:
            self._step(thread, node, found)
            return
        spaced, child = thread.spaced, self.tree.children(node).get(_SPACE)
        if spaced and child is not None:
            found.nodes.append(child)
            self.visit(spaced, child, found)
        self._value(thread.value, node, found)

    def _value(self, thread: Value, node: int, found: Found) -> None:
        below = thread.below
        assert below is not None
        if isinstance(below, Hole) or thread.is_avoiding:
            self._begin_value(thread, node, found)
            return
        alone = self._alone(thread, node)
        found.nodes += alone.nodes
        found.masks += alone.masks
        found.ends += [((*chain, below), ends) for chain, ends in alone.ends]
        for hole in alone.holes:
            self.visit(below, hole, found)

    def _alone(self, thread: Value, node: int) -> Found:
        """A value's own part, which is the same wherever it stands at this depth."""
        value = self._alike(thread.node)
        depth = 0 if value.is_scalar else thread.depth
        key = (value, depth, node)
        found = self._values.get(key)
        if found is None:
            found = Found()
            alone = thread.make(Value, value, thread.make(Hole, depth))
            self._begin_value(alone, node, found)
            self._values[key] = found
        return found

    def _alike(self, value: Node) -> Node:
        """The first of all nodes with the same scalar values and no others, or the node itself."""
        found = self._first_alike.get(value)
        if found is None:
            scalars = (value.literals, value.numbers, value.strings)
            found = self._scalars.setdefault(scalars, value) if value.is_scalar else value
            self._first_alike[value] = found
        return found

    def _begin_value(self, thread: Value, node: int, found: Found) -> None:
        self._step(thread, node, found)

    def _literal(self, thread: Literal, node: int, found: Found) -> None:
        for character in thread.text:
            child = self.tree.children(node).get(ord(character))
            if child is None:
                return
            found.nodes.append(child)
            node = child
        assert thread.below is not None
        self.visit(thread.below, node, found)

    def _number(self, thread: Number, node: int, found: Found) -> None:
        for byte, child in self.tree.children(node).items():
            for longer in thread.grow(byte):
                found.nodes.append(child)
                self.visit(longer, child, found)
        self._after_number(thread, node, found)

    def _after_number(self, thread: Number, node: int, found: Found) -> None:
        """A number ends where the next byte belongs to what follows."""
        for following in thread.content.finish():
            self.visit(following, node, found)

    def _text(self, thread: Text, node: int, found: Found) -> None:
        self._step(thread, node, found)


class SuffixWalker(Walker):
    """Walks the suffixes that tokens hold after content has ended. They are few and short."""

    def __init__(self, suffixes: Suffixes, gaps: Gaps) -> None:
        super().__init__(suffixes, gaps)
        self._size = suffixes.size
        self._from: dict[tuple[Thread, int], Found] = {}
        self._allowed: dict[Threads, NDArray[np.bool_]] = {}
        self._by_bytes: dict[bytes, NDArray[np.bool_]] = {}

    def allowed(self, chain: Chain) -> NDArray[np.bool_]:
        """bool [nodes], made once: the suffixes that the chain allows. Do not change it."""
        first, rest = _made(chain[0]), chain[1:]
        threads = (first, *map(_made, rest)) if self._first(first, 0).holes else (first,)
        found = self._allowed.get(threads)
        if found is None:
            nodes = np.zeros(self._size, dtype=np.bool_)
            nodes[[0, *self._nodes(threads, 0)]] = True
            found = self._by_bytes.setdefault(nodes.tobytes(), nodes)
            self._allowed[threads] = found
        return found

    def is_left(self, thread: Thread) -> bool:
        """Whether some suffix goes on behind the value that the thread is before."""
        return bool(self._first(thread, 0).holes)

    def _nodes(self, threads: Threads, node: int) -> list[int]:
        thread, *rest = threads
        found = self._first(thread, node)
        if not found.holes or not rest:
            return found.nodes
        return [*found.nodes, *(n for hole in found.holes for n in self._nodes(tuple(rest), hole))]

    def _first(self, thread: Thread, node: int) -> Found:
        """What the first of a chain finds."""
        found = self._from.get((thread, node))
        if found is None:
            found = Found()
            self.visit(thread, node, found)
            self._from[thread, node] = found
        return found

    @property
    def nbytes(self) -> int:
        kept = 200 * len(self._allowed) + 2 * (100 + self._size) * len(self._by_bytes)
        return super().nbytes + 600 * len(self._from) + kept


class TrieWalker(Walker):
    """Walks a vocabulary's trie. Strings, numbers and names have profiles there."""

    def __init__(self, trie: Trie, gaps: Gaps, profiles: Profiles) -> None:
        super().__init__(trie, gaps)
        self._trie, self._profiles = trie, profiles
        self._names: dict[NameTrie, NameProfiles] = {}
        self._colons: dict[tuple[Node, int], Colon] = {}
        self._takes_any_name: dict[Object, bool] = {}
        self._anything: dict[int, Profile] = {}

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(names.nbytes for names in self._names.values())

    def _begin_value(self, thread: Value, node: int, found: Found) -> None:
        """Numbers are read with the profile that starts before their first byte."""
        if not thread.node.numbers or thread.is_avoiding:
            self._step(thread, node, found)
            return
        below = thread.below
        assert below is not None
        for lang in thread.node.numbers:
            self._plain_number(lang, 0, below, node, found)
        self._step(thread, node, found, thread.other_bytes)

    def _number(self, thread: Number, node: int, found: Found) -> None:
        content = thread.content
        if not isinstance(content, Plain):
            super()._number(thread, node, found)
            return
        self._plain_number(content.lang, content.state, content.below, node, found)
        self._after_number(thread, node, found)

    def _plain_number(
        self, lang: StringLang, state: int, below: Thread, node: int, found: Found
    ) -> None:
        profile = self._profiles.number(lang, state, node)
        found.masks.append(profile.inside)
        found.ends.append(((below,), profile.ends))

    def _text(self, thread: Text, node: int, found: Found) -> None:
        content = thread.content
        if isinstance(content, Plain):
            build = self._profiles.string if isinstance(thread, String) else self._profiles.text
            place = (content.lang, content.state, content.length)
            profile = build(*place, node, thread.partial)
            found.masks.append(profile.inside)
            found.ends.append(((content.below,), profile.ends))
        elif thread.partial:
            self._step(thread, node, found)
        elif isinstance(content, Named):
            self._named(content, node, found)
        elif isinstance(content, Tracked) and content.is_wide:
            profile = self._profiles.string(content.lang, content.state, content.length, node)
            found.masks.append(profile.inside)
            for rest, ends in self._profiles.endings(profile, content.rests):
                text = _UNKNOWN if rest is None else content.text + rest
                found.ends += [(chain, ends) for chain in self._after_slot(content.slot, text)]
        else:
            self._step(thread, node, found)

    def _named(self, content: Named, node: int, found: Found) -> None:
        object_, open_names = content.object, content.object.open_names
        if self._is_any_name(object_):
            profile = self._among_any(content, node)
        else:
            profile = self._names_of(object_).get(content.node, node)
            found.nodes += [at for at, reach in profile.within if reach & open_names]
        found.nodes += [at for at, index in profile.after if open_names >> index & 1]
        for index, ends in profile.longer:
            if open_names >> index & 1:
                colon = self.colon(object_, object_.shape.nodes[index])
                found.ends.append(((colon, partial(object_.with_name, index)), ends))

    def adds_nothing(self, content: Named) -> bool:
        """Whether the thread of other names allows whatever this one does, below the root."""
        object_ = content.object
        return self._is_any_name(object_) and not (
            self._among_any(content, 0).ended & object_.open_names
        )

    def _among_any(self, content: Named, node: int) -> NameProfile:
        anything = self._anything.get(node)
        if anything is None:
            anything = self._anything[node] = self._profiles.string(ANYTHING, 0, 0, node)
        return self._names_of(content.object).among(anything, content.node, node)

    def _names_of(self, object_: Object) -> NameProfiles:
        trie = object_.shape.trie
        found = self._names.get(trie)
        if found is None:
            found = self._names[trie] = NameProfiles(self._trie, self._profiles.suffixes, trie)
        return found

    def _is_any_name(self, object_: Object) -> bool:
        """Whether any other text may be a name too: its own thread then allows all within one."""
        found = self._takes_any_name.get(object_)
        if found is None:
            any_ = object_.shape.any_classes
            found = bool(any_) and not any_.isdisjoint(object_.open_classes())
            self._takes_any_name[object_] = found
        return found

    def taken(self, content: Tracked) -> frozenset[int]:
        """Below the root, the exits where the content would be a text to avoid."""
        if not content.rests:
            return _NO_EXITS
        profile = self._profiles.string(content.lang, content.state, content.length, 0)
        return frozenset(profile.exits_of(self._trie, content.rests))

    def _after_slot(self, slot: Slot, text: str) -> Iterable[Chain]:
        if not isinstance(slot, KeySlot):
            return ((thread,) for thread in slot.resume(text))
        return ((self.colon(slot.object, slot.node), partial(slot.object.with_extra, text)),)

    def colon(self, object_: Object, value: Node) -> Colon:
        """After a key, whatever is around the value."""
        value = self._alike(value)
        place = (value, 0 if value.is_scalar else object_.depth)
        found = self._colons.get(place)
        if found is None:
            hole = object_.make(Hole, place[1])
            found = self._colons[place] = object_.make(Colon, value, 0, hole)
        return found


def _made(link: Link) -> Thread:
    return link if isinstance(link, Thread) else link()
