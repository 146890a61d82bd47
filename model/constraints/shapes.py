"""What a compiled constraint looks like: languages of strings, and shapes of arrays and objects.

schema.py builds these from a JSON schema; json_parser.py walks them. Everything here is immutable
once linked, holds only values that can be reached and completed, and is shared by all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from model.constraints.dfa import ANY_TEXT, Dfa, TooComplex, intersect, length_between
from model.constraints.names import NameTrie, name_trie
from model.constraints.tables import predecessors

MAX_DEPTH = 64
"""Containers an answer may nest; validators that recurse stay well within Python's limit."""

_MAX_HORIZON = 20_000


@dataclass(frozen=True)
class StringLang:
    """Texts of a regular language with a length in code points from `minimum` to `maximum`.

    A place in it is `(state, length)`: the automaton's state and the characters read so far, where
    lengths that can no longer matter are all counted as `minimum`.
    """

    dfa: Dfa
    minimum: int = 0
    maximum: int | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.dfa, self.minimum, self.maximum))

    @cached_property
    def is_counted(self) -> bool:
        return self.minimum > 0 or self.maximum is not None

    def read(self, state: int, length: int, text: str) -> tuple[int, int] | None:
        """The place after more characters, or None where nothing can follow."""
        if not self._takes_anything:
            step = self.dfa.step
            for character in text:
                after = step(state, ord(character))
                if after is None:
                    return None
                state = after
        if not self.is_counted:
            return state, 0
        longer = self.lengthen(length, len(text))
        return (state, longer) if self.is_live(state, longer) else None

    @cached_property
    def _takes_anything(self) -> bool:
        """Whether only lengths are limited, so that characters need not be looked at."""
        return self.dfa == ANY_TEXT

    def lengthen(self, length: int, by: int) -> int:
        return length + by if self.maximum is not None else min(length + by, self.minimum)

    def accepts(self, state: int, length: int) -> bool:
        return (
            state in self.dfa.accepting
            and length >= self.minimum
            and (self.maximum is None or length <= self.maximum)
        )

    def allows(self, state: int, length: int, low: int, high: int) -> bool:
        """Whether some character from `low` to `high` can come next."""
        longer = self.lengthen(length, 1)
        return any(
            lo <= high and hi >= low and (not self.is_counted or self.is_live(target, longer))
            for lo, hi, target in self.dfa.edges[state]
        )

    def is_live(self, state: int, length: int) -> bool:
        """Whether some text of allowed length can be completed from here."""
        least = max(self.minimum - length, 0)
        edges = len(self.dfa.edges)
        most = least + edges if self.maximum is None else self.maximum - length
        if most < least:
            return False
        exact, stable_from, stable = self._rests
        if most >= stable_from and state in stable:
            return True
        bits = exact[state] >> least
        return bool(bits & ((1 << (most - least + 1)) - 1))

    def live_states(self, length: int) -> NDArray[np.bool_]:
        """`is_live` of every state: bool [states]."""
        least = max(self.minimum - length, 0)
        most = least + len(self.dfa.edges) if self.maximum is None else self.maximum - length
        if most < least:
            return np.zeros(len(self.dfa.edges), dtype=np.bool_)
        _, stable_from, stable = self._rests
        shorter = self._shorter
        last = shorter.shape[1] - 1
        found: NDArray[np.bool_] = shorter[:, min(most + 1, last)] > shorter[:, min(least, last)]
        if most >= stable_from:
            found[list(stable)] = True
        return found

    @cached_property
    def _shorter(self) -> NDArray[np.int32]:
        """int32 [states, n]: how many of the lengths below n a state accepts texts of."""
        exact, stable_from, _ = self._rests
        size = -(-(stable_from + 1) // 8)
        packed = b"".join(bits.to_bytes(size, "little") for bits in exact)
        bits = np.frombuffer(packed, dtype=np.uint8).reshape(len(exact), size)
        found = np.zeros((len(exact), 8 * size + 1), dtype=np.int32)
        np.cumsum(np.unpackbits(bits, axis=1, bitorder="little"), axis=1, out=found[:, 1:])
        return found

    @cached_property
    def _rests(self) -> tuple[list[int], int, frozenset[int]]:
        """Per state a bit set of the lengths of what it accepts, up to where that set repeats.

        Returns (bits, n, states): from length n on, exactly `states` accept texts of each length.
        """
        edges = self.dfa.edges
        horizon = (self.minimum + len(edges)) if self.maximum is None else self.maximum
        sources = predecessors(edges)
        exact = [0] * len(edges)
        layer = frozenset(self.dfa.accepting)
        for length in range(horizon + 1):
            for state in layer:
                exact[state] |= 1 << length
            after = frozenset(source for state in layer for source in sources[state])
            if after == layer:
                return exact, length, layer
            if length > _MAX_HORIZON:
                raise TooComplex(f"a pattern with lengths up to {horizon}")
            layer = after
        return exact, horizon + 1, frozenset()

    @property
    def is_empty(self) -> bool:
        return self.dfa.is_empty or (self.is_counted and not self.is_live(0, 0))

    def count(self) -> int | None:
        """How many texts there are, None for very many. Exact for langs that `folded` returned."""
        return self.dfa.count() if self.dfa.is_finite else None

    def mask_place(self, state: int, length: int, reach: int) -> tuple[int, int]:
        """The place, or one for all whose lengths no token of `reach` bytes can tell apart."""
        if not self.is_counted or length < self.minimum:
            return state, length
        is_near = self.maximum is not None and self.maximum - length < reach + self._rests[1]
        return state, (length if is_near else self.minimum)


@dataclass(eq=False)
class Node:
    """The values allowed at one place of the answer: a union over the JSON types."""

    pointer: str
    literals: tuple[str, ...] = ()
    numbers: tuple[StringLang, ...] = ()
    strings: tuple[StringLang, ...] = ()
    arrays: tuple[ArrayShape, ...] = ()
    objects: tuple[ObjectShape, ...] = ()
    height: int | None = None
    """Containers the flattest value needs; None while, or because, no value is possible."""

    def part(self) -> list[Node]:
        """Takes its shapes away, and returns the nodes that they had."""
        items = [c.node for array in self.arrays for c in chain(*array.prefix, array.rest)]
        listed = [node for object_ in self.objects for node in object_.nodes]
        others = [key.node for object_ in self.objects for key in object_.classes]
        self.arrays, self.objects = (), ()
        return [*items, *listed, *others]

    @cached_property
    def first_bytes(self) -> bytes:
        """The bytes that can begin a value."""
        found = {text[0] for text in self.literals}
        for lang in self.numbers:
            found |= {chr(c) for lo, hi, _ in lang.dfa.edges[0] for c in range(lo, hi + 1)}
        found |= {'"'} if self.strings else set()
        found |= {"["} if self.arrays else set()
        found |= {"{"} if self.objects else set()
        return "".join(sorted(found)).encode("latin-1")

    @cached_property
    def is_scalar(self) -> bool:
        """Whether no value is an array or object."""
        return not (self.arrays or self.objects)

    @cached_property
    def scalar_count(self) -> int | None:
        """How many scalar values there are, None for very many."""
        counts = [lang.count() for lang in (*self.numbers, *self.strings)]
        if any(count is None for count in counts):
            return None
        return len(self.literals) + sum(count or 0 for count in counts)


@dataclass(frozen=True, eq=False)
class KeyClass:
    """Property names that are not listed one by one, and what their values must be."""

    lang: StringLang
    node: Node
    is_needed: bool = False
    """At least one name of this class must come."""


def bits(names: int) -> Iterator[int]:
    """The bits of a set of names, one by one."""
    while names:
        yield names & -names
        names &= names - 1


@dataclass(eq=False)
class ObjectShape:
    """Objects: listed names with a node each, classes of other names, and counts.

    Bit i of a name set stands for `names[i]`. `pulls[i]` is the set of names that must come once
    name i has come, itself included, closed under itself.
    """

    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    classes: tuple[KeyClass, ...]
    required: int
    pulls: tuple[int, ...]
    minimum: int = 0
    maximum: int | None = None
    is_ordered: bool = False
    usable: int = 0
    """Names whose value, and all that they pull, is possible. Set by linking."""
    height: int | None = None

    @cached_property
    def trie(self) -> NameTrie:
        return name_trie(self.names)

    @cached_property
    def name_set(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def taken(self) -> tuple[frozenset[str], ...]:
        """Per class the listed names that belong to it: they are not free for it."""
        return tuple(
            frozenset(name for name in self.names if key.lang.dfa.matches(name))
            for key in self.classes
        )

    @cached_property
    def any_classes(self) -> frozenset[int]:
        """The classes that any text belongs to."""
        langs = enumerate(key.lang for key in self.classes)
        return frozenset(i for i, lang in langs if not lang.is_counted and lang.dfa == ANY_TEXT)

    @cached_property
    def needs_a_class(self) -> bool:
        """Whether some class of other names must come."""
        return any(key.is_needed for key in self.classes)

    @cached_property
    def pulls_nothing(self) -> bool:
        return all(pulled == 1 << index for index, pulled in enumerate(self.pulls))

    @cached_property
    def tallest(self) -> int:
        """The height of the tallest listed value."""
        return max((node.height or 0 for node in self.nodes), default=0)

    def owed(self, used: int) -> int:
        """The names that must still come when `used` have come."""
        owed, bits = self.required, used
        while bits and not self.pulls_nothing:
            low = bits & -bits
            owed |= self.pulls[low.bit_length() - 1]
            bits ^= low
        return owed & ~used


@dataclass(frozen=True)
class Contains:
    """At least `minimum` and at most `maximum` items match a schema."""

    minimum: int
    maximum: int | None


@dataclass(frozen=True, eq=False)
class ItemChoice:
    """One way to read an item: as a value of `node`, counting for the contains in `counts`."""

    node: Node
    counts: frozenset[int] = frozenset()


@dataclass(eq=False)
class ArrayShape:
    """Arrays: choices for each of the first items, choices for all later ones, and counts."""

    prefix: tuple[tuple[ItemChoice, ...], ...]
    rest: tuple[ItemChoice, ...]
    minimum: int = 0
    maximum: int | None = None
    is_unique: bool = False
    contains: tuple[Contains, ...] = ()
    height: int | None = None

    def choices(self, index: int) -> tuple[ItemChoice, ...]:
        """The ways to read item `index`; none beyond the maximum."""
        if self.maximum is not None and index >= self.maximum:
            return ()
        return self.prefix[index] if index < len(self.prefix) else self.rest

    @cached_property
    def places(self) -> int:
        """From this index on all items are alike, so that larger ones need not be told apart."""
        return max(len(self.prefix), self.minimum)

    def next_index(self, index: int) -> int:
        return index + 1 if self.maximum is not None else min(index + 1, self.places)

    def capacity(self, index: int, contains: int, *, counted: bool) -> int | None:
        """How many items from `index` on can (or need not) count for a contains; None unlimited."""
        fits = sum(
            any((contains in choice.counts) == counted for choice in choices)
            for choices in self.prefix[index : self.maximum]
        )
        if any((contains in choice.counts) == counted for choice in self.rest):
            if self.maximum is None:
                return None
            fits += max(self.maximum - max(index, len(self.prefix)), 0)
        return fits


@dataclass(frozen=True, eq=False)
class Style:
    """How much whitespace an answer may hold between its tokens.

    `spaces` counts the blanks (space or tab) of one gap after `{ [ ,` or before `} ]`, with one
    line break before them where `breaks`; after a colon at most one space where `colon_space`.
    """

    spaces: int
    breaks: bool
    colon_space: bool
    inner_gaps: bool
    """Gaps after `{ [` and before `} ]` too, not only after `,`."""
    idle_escapes: bool = False
    """Escapes that nobody needs too: `\\/`, and `\\uXXXX` for printable ASCII."""


STYLES: Mapping[str, Style] = {
    "none": Style(0, False, False, False),
    "compact": Style(1, False, True, False),
    "flexible": Style(40, True, True, True),
}
"""What answers are written in, by the name a ConstraintSpec gives."""

EVERY_SPELLING = Style(40, True, True, True, idle_escapes=True)
"""For judging given texts rather than writing new ones."""


class Owner:
    """Takes the nodes below a root apart when it goes, so that no circle of theirs is left."""

    def __init__(self, root: Node) -> None:
        self.root = root

    def __del__(self) -> None:
        pending = [self.root]
        while pending:
            pending += pending.pop().part()


@dataclass(frozen=True, eq=False)
class Constraint:
    """A compiled constraint: the root of a JSON answer, or a language of plain text.

    It owns the nodes of a root, which go with it. Make another one of them with
    `dataclasses.replace`, which shares the ownership.
    """

    root: Node | StringLang
    style: Style = field(default=STYLES["flexible"])
    owner: Owner | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.owner is None and isinstance(self.root, Node):
            object.__setattr__(self, "owner", Owner(self.root))


@lru_cache(maxsize=1024)
def folded(lang: StringLang) -> StringLang:
    """The same language without counted lengths where it is finite or tiny, so that counts hold."""
    is_small = lang.maximum is not None and lang.maximum <= 1
    if lang.is_counted and (lang.dfa.is_finite or is_small):
        return StringLang(intersect(lang.dfa, length_between(lang.minimum, lang.maximum)))
    return lang
