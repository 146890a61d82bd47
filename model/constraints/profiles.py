"""Which tokens stay inside a string, number or name, and where the others leave it.

A profile depends only on the language and the place in it, not on what is around the string, so it
is computed once and serves every mask of every schema that has such a string.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.constraints.byte_table import ByteTable, table_of, table_of_names
from model.constraints.shapes import STYLES, NameTrie, StringLang
from model.constraints.threads import Content, Done, Interner, String, Thread, Threads
from model.constraints.trie import Trie
from model.constraints.vocabulary import Vocabulary

Ids = NDArray[np.int32]
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STRUCTURAL = np.frombuffer(b" \t\n,}]", dtype=np.uint8)


class SuffixTree:
    """What tokens hold after the end of a string, as a tree: equal suffixes share a node.

    Each token comes with the characters of the string that it holds before the end.
    """

    def __init__(self) -> None:
        self._children: list[dict[int, int]] = [{}]
        self._ids: list[list[int]] = [[]]
        self._read: list[list[int]] = [[]]

    def add(self, trie: Trie, exit_node: int, read: int) -> None:
        """Adds the subtree below the node where the string has ended."""
        pending = [(exit_node, 0)]
        while pending:
            node, here = pending.pop()
            ids = trie.tokens_at(node).tolist()
            self._ids[here] += ids
            self._read[here] += [read] * len(ids)
            for byte, child in trie.children(node).items():
                pending.append((child, self._child(here, byte)))

    def _child(self, node: int, byte: int) -> int:
        found = self._children[node].get(byte)
        if found is None:
            found = self._children[node][byte] = len(self._ids)
            self._children.append({})
            self._ids.append([])
            self._read.append([])
        return found

    def children(self, node: int) -> dict[int, int]:
        return self._children[node]

    def tokens_at(self, node: int) -> list[int]:
        return self._ids[node]

    def between(self, node: int, low: int, high: int) -> list[int]:
        """The tokens at a node that hold from `low` to `high` characters of the string."""
        pairs = zip(self._ids[node], self._read[node], strict=True)
        return [token for token, read in pairs if low <= read <= high]


@dataclass(frozen=True, eq=False)
class SuffixesBetween:
    """The suffixes of tokens that hold from `low` to `high` characters of the string."""

    tree: SuffixTree
    low: int
    high: int

    def children(self, node: int) -> dict[int, int]:
        return self.tree.children(node)

    def tokens_at(self, node: int) -> list[int]:
        return self.tree.between(node, self.low, self.high)


@dataclass(frozen=True, eq=False)
class Profile:
    """The tokens below a node of the trie, for content that has reached a place there.

    `inside` are the ids of tokens that end within the content, `read` how many of its characters
    each has begun. `exits` are the nodes where it has just ended (after the quote of a string) with
    the text that was read on the way.
    """

    trie: Trie
    inside: Ids
    read: Ids
    find_exits: Callable[[], list[tuple[int, str]]]

    @cached_property
    def exits(self) -> list[tuple[int, str]]:
        return self.find_exits()

    @cached_property
    def suffixes(self) -> SuffixTree | SuffixesBetween:
        """What follows the content's end, over all exits."""
        tree = SuffixTree()
        for node, text in self.exits:
            tree.add(self.trie, node, len(text))
        return tree

    @cached_property
    def by_text(self) -> dict[str, list[int]]:
        """The exits for each text."""
        found: dict[str, list[int]] = {}
        for node, text in self.exits:
            found.setdefault(text, []).append(node)
        return found

    def tokens_ending(self, text: str) -> list[int]:
        """The ids of all tokens in which the content ends as `text`."""
        nodes = self.by_text.get(text, [])
        return [token for node in nodes for token in self.trie.tokens_below(node).tolist()]


class Lengthwise:
    """The profile of an uncounted language of one state, cut to what a length still allows.

    There a token's characters are all that matters: a cut is a slice, and the rest is shared.
    """

    def __init__(self, full: Profile) -> None:
        order = np.argsort(full.read, kind="stable")
        self._full, self._ids, self._read = full, full.inside[order], full.read[order]
        self._tree = full.suffixes
        assert isinstance(self._tree, SuffixTree)

    def cut(self, least: int, most: int | None) -> Profile:
        """Tokens of at most `most` characters; the content may end after at least `least`."""
        end = len(self._ids)
        if most is not None:
            end = int(np.searchsorted(self._read, most, side="right"))
        high = end if most is None else most
        exits = [(node, text) for node, text in self._full.exits if least <= len(text) <= high]
        cut = Profile(self._full.trie, self._ids[:end], self._read[:end], lambda: exits)
        assert isinstance(self._tree, SuffixTree)
        cut.__dict__["suffixes"] = SuffixesBetween(self._tree, least, high)
        return cut


class _Probe(Content):
    """Content that remembers its text and, when it ends, only that it has ended."""

    __slots__ = ("done", "lang", "length", "state", "text")

    def __init__(
        self, make: Interner, lang: StringLang, state: int, length: int, text: str, done: Thread
    ) -> None:
        self.make, self.lang, self.state, self.length = make, lang, state, length
        self.text, self.done, self.depth = text, done, 0

    def push(self, code_point: int) -> Content | None:
        place = self.lang.advance(self.state, self.length, code_point)
        if place is None:
            return None
        return _Probe(self.make, self.lang, *place, self.text + chr(code_point), self.done)

    def allows(self, low: int, high: int) -> bool:
        return self.lang.allows(self.state, self.length, low, high)

    def finish(self) -> Threads:
        return (self.done,) if self.lang.accepts(self.state, self.length) else ()


class Profiles:
    """The profiles of one vocabulary, the oldest first out beyond `max_bytes`."""

    def __init__(self, vocabulary: Vocabulary, max_bytes: int) -> None:
        self.trie, self.reach = vocabulary.trie, vocabulary.max_token_length
        self.max_bytes, self.used_bytes = max_bytes, 0
        self._kept: OrderedDict[tuple[object, ...], Profile] = OrderedDict()
        trie = self.trie
        starts_character = (trie.byte & 0xC0) != 0x80
        starts_character[0] = False
        self._characters = _sum_along_paths(trie, starts_character)
        self._token_characters = np.zeros(vocabulary.size, dtype=np.int32)
        self._token_characters[trie.token_ids] = np.repeat(
            self._characters, np.diff(trie.first_token)
        )
        self._by_length: dict[tuple[StringLang, int], Lengthwise] = {}
        self._quote = _children_by(trie, _QUOTE)
        self._backslash = _children_by(trie, _BACKSLASH)
        self._structural = np.zeros(trie.nodes, dtype=np.bool_)
        self._structural[trie.parent[1:][np.isin(trie.byte[1:], _STRUCTURAL)]] = True

    def string(self, lang: StringLang, state: int, length: int, node: int) -> Profile:
        """Inside a JSON string, between characters."""
        state, length = lang.mask_place(state, length, self.reach)
        key = ("string", lang, state, length, node)
        return self._get(key, lambda: self._string(lang, state, length, node))

    def number(self, lang: StringLang, state: int, node: int) -> Profile:
        """Inside a number."""
        key = ("number", lang, state, node)
        return self._get(key, lambda: self._number(lang, state, node))

    def text(self, lang: StringLang, state: int, length: int, node: int) -> Profile:
        """Inside plain text, which ends with the answer."""
        state, length = lang.mask_place(state, length, self.reach)
        key = ("text", lang, state, length, node)
        return self._get(key, lambda: self._text(lang, state, length, node))

    def _get(self, key: tuple[object, ...], build: Callable[[], Profile]) -> Profile:
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = build()
            self.used_bytes += found.inside.nbytes + 500
            while self.used_bytes > self.max_bytes and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self.used_bytes -= dropped.inside.nbytes + 500
                self._by_length.clear()  # they hold what profiles hold, and more
        return found

    def _string(self, lang: StringLang, state: int, length: int, node: int) -> Profile:
        if lang.is_counted and len(lang.dfa.edges) == 1:
            least = max(lang.minimum - length, 0)
            most = None if lang.maximum is None else lang.maximum - length
            return self._lengthwise(StringLang(lang.dfa), node).cut(least, most)
        table = table_of(lang.dfa)
        nodes, states = self.trie.walk(table.json, state, node)
        read = self._characters[nodes] - self._characters[node]
        if lang.is_counted:
            live = _Lengths(lang, table, length, int(read.max()) + 1).is_live(states, read)
            nodes, states, read = nodes[live], states[live], read[live]
        whole = states < table.whole
        escapes = self._escapes(lang, length, nodes, states, read, whole)
        raw = self.trie.tokens_of(nodes[nodes != node])
        inside = np.concatenate([raw, escapes.ids, *(p.inside for p, _ in escapes.inner)])
        held = [self._token_characters[raw] - self._characters[node], escapes.read]
        held += [profile.read + len(text) for profile, text in escapes.inner]

        def find_exits() -> list[tuple[int, str]]:
            ends = np.flatnonzero(whole & (self._quote[nodes] >= 0))
            found = [
                (int(self._quote[nodes[at]]), self._path(int(nodes[at]), node))
                for at in ends
                if lang.accepts(int(states[at]), lang.lengthen(length, int(read[at])))
            ]
            for profile, text in escapes.inner:
                found += [(exit_, text + rest) for exit_, rest in profile.exits]
            return found

        return Profile(self.trie, inside, np.concatenate(held), find_exits)

    def _lengthwise(self, lang: StringLang, node: int) -> Lengthwise:
        """The tokens of a one-state language by how many characters they hold."""
        found = self._by_length.get((lang, node))
        if found is None:
            found = self._by_length[lang, node] = Lengthwise(self.string(lang, 0, 0, node))
        return found

    def _escapes(
        self,
        lang: StringLang,
        length: int,
        nodes: Ids,
        states: Ids,
        read: Ids,
        whole: NDArray[np.bool_],
    ) -> _Escapes:
        """What tokens do after a backslash, read byte by byte: there are few of them."""
        found = _Escapes()
        make = Interner(STYLES["none"])
        done = Done(make)
        for at in np.flatnonzero(whole & (self._backslash[nodes] >= 0)):
            start = int(nodes[at])
            place = int(states[at]), lang.lengthen(length, int(read[at]))
            content = _Probe(make, lang, *place, "", done)
            pending = [
                (int(self._backslash[start]), thread)
                for thread in String(make, content).step(_BACKSLASH)
            ]
            while pending:
                node, thread = pending.pop()
                assert isinstance(thread, String)
                inner = thread.content
                assert isinstance(inner, _Probe)
                begun = int(read[at]) + len(inner.text) + bool(thread.partial)
                found.add(self.trie.tokens_at(node).tolist(), begun)
                if not thread.partial:
                    text = self._path(start, int(nodes[0])) + inner.text
                    profile = self.string(lang, inner.state, inner.length, node)
                    found.inner.append((profile, text))
                    continue
                for byte, child in self.trie.children(node).items():
                    pending += [(child, after) for after in thread.step(byte)]
        return found

    def _number(self, lang: StringLang, state: int, node: int) -> Profile:
        nodes, states = self.trie.walk(table_of(lang.dfa).text, state, node)
        accepting = np.zeros(len(lang.dfa.edges), dtype=np.bool_)
        accepting[list(lang.dfa.accepting)] = True
        ends = nodes[accepting[states] & self._structural[nodes]]
        exits = [(int(end), self._path(int(end), node)) for end in ends if end != node]
        inside = self.trie.tokens_of(nodes[nodes != node])
        return Profile(self.trie, inside, self._token_characters[inside], lambda: exits)

    def _text(self, lang: StringLang, state: int, length: int, node: int) -> Profile:
        table = table_of(lang.dfa)
        nodes, states = self.trie.walk(table.text, state, node)
        if lang.is_counted:
            read = self._characters[nodes] - self._characters[node]
            live = _Lengths(lang, table, length, int(read.max()) + 1).is_live(states, read)
            nodes = nodes[live]
        inside = self.trie.tokens_of(nodes[nodes != node])
        return Profile(self.trie, inside, self._token_characters[inside], list)

    def _path(self, node: int, start: int) -> str:
        """The text between two nodes of one path."""
        found = bytearray()
        while node != start:
            found.append(int(self.trie.byte[node]))
            node = int(self.trie.parent[node])
        return bytes(reversed(found)).decode()


class _Escapes:
    """Tokens that end after a backslash, and the profiles where an escape is complete."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._read: list[int] = []
        self.inner: list[tuple[Profile, str]] = []

    def add(self, ids: list[int], read: int) -> None:
        self._ids += ids
        self._read += [read] * len(ids)

    @property
    def ids(self) -> Ids:
        return np.array(self._ids, dtype=np.int32)

    @property
    def read(self) -> Ids:
        return np.array(self._read, dtype=np.int32)


class _Lengths:
    """Which states can be completed when `read` characters follow a place of `length`."""

    def __init__(self, lang: StringLang, table: ByteTable, length: int, most: int) -> None:
        whole = [
            [lang.is_live(state, lang.lengthen(length, read)) for read in range(most + 1)]
            for state in range(table.whole)
        ]
        # Within a character, that one is read already but counts only once it is complete.
        within = [
            [any(whole[target][read] for target in targets) for read in range(most + 1)]
            for targets in table.targets
        ]
        self._live = np.array(whole + within, dtype=np.bool_)

    def is_live(self, states: Ids, read: Ids) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._live[states, read]
        return found


@dataclass(frozen=True, eq=False)
class NameProfile:
    """For listed names: per trie node of names, the tokens that end there; and the exits.

    `escapes` are the nodes after a backslash with the name node before it.
    """

    inside: list[tuple[int, Ids]]
    exits: list[tuple[int, int]]
    """(node after the quote, index of the name)"""
    escapes: list[tuple[int, int]]


class NameProfiles:
    """The name profiles of one vocabulary for one trie of names."""

    def __init__(self, profiles: Profiles, names: NameTrie) -> None:
        self._trie, self._names = profiles.trie, names
        self._quote, self._backslash = profiles._quote, profiles._backslash
        self._table = table_of_names(names)
        self._kept: dict[tuple[int, int], NameProfile] = {}

    def get(self, name_node: int, node: int) -> NameProfile:
        """Below `node` of the vocabulary's trie, with the names read up to `name_node`."""
        key = (name_node, node)
        if key not in self._kept:
            self._kept[key] = self._build(name_node, node)
        return self._kept[key]

    def reach(self, state: int) -> int:
        """The set of names that can still be meant in a state of the table."""
        if state < self._table.whole:
            return self._names.reach[state]
        targets = self._table.targets[state - self._table.whole]
        found = 0
        for target in targets:
            found |= self._names.reach[target]
        return found

    def _build(self, name_node: int, node: int) -> NameProfile:
        nodes, states = self._trie.walk(self._table.json, name_node, node)
        by_state: dict[int, list[int]] = {}
        for at, state in zip(nodes.tolist(), states.tolist(), strict=True):
            if at != node:
                by_state.setdefault(state, []).extend(self._trie.tokens_at(at).tolist())
        inside = [
            (self.reach(state), np.array(ids, dtype=np.int32))
            for state, ids in by_state.items()
            if ids
        ]
        whole = np.flatnonzero(states < self._table.whole)
        exits = [
            (int(self._quote[nodes[at]]), self._names.name[int(states[at])])
            for at in whole
            if self._quote[nodes[at]] >= 0 and self._names.name[int(states[at])] >= 0
        ]
        escapes = [
            (int(self._backslash[nodes[at]]), int(states[at]))
            for at in whole
            if self._backslash[nodes[at]] >= 0
        ]
        return NameProfile(inside, exits, escapes)


def _children_by(trie: Trie, byte: int) -> Ids:
    """Per node its child by a byte, or -1."""
    found = np.full(trie.nodes, -1, dtype=np.int32)
    children = np.flatnonzero(trie.byte == byte)
    children = children[children > 0]
    found[trie.parent[children]] = children
    return found


def _sum_along_paths(trie: Trie, marks: NDArray[np.bool_]) -> Ids:
    """Per node how many nodes from the root to it are marked."""
    total = marks.astype(np.int32)
    for depth in range(1, int(trie.depth.max(initial=0)) + 1):
        nodes = np.flatnonzero(trie.depth == depth)
        total[nodes] += total[trie.parent[nodes]]
    return total
