"""Regular languages of Unicode text as explicit, minimal, trimmed automata.

The alphabet is every Unicode scalar value: 0 to 0x10FFFF without the surrogates D800 to DFFF, which
JSON text in UTF-8 cannot carry. Every operation is bounded by a Budget and raises TooComplex
instead of running on; none recurses. Equal languages are equal objects by `==` and `hash`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from model.constraints import tables
from model.constraints.tables import (
    MAX_STATES,
    MAX_WORK,
    Budget,
    Edge,
    EdgeArrays,
    Row,
    TooComplex,
)

__all__ = [
    "ANY_TEXT", "COUNT_CAP", "EMPTY", "EMPTY_TEXT", "MAX_STATES", "MAX_WORK", "UNIVERSE", "Budget",
    "Dfa", "TooComplex", "any_text", "build", "complement", "concat", "difference", "explore",
    "intersect", "is_disjoint", "is_subset", "length_between", "literal", "literals", "union",
]  # fmt: skip

UNIVERSE = ((0x0, 0xD7FF), (0xE000, 0x10FFFF))
"""The code points a text may hold, as intervals with both ends included."""

MAX_LITERAL_STATES = 200_000
"""States that the automaton of a list of strings may have."""

COUNT_CAP = 1_000_000
"""Counts of strings saturate here: a finite language with more strings reports this many."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Dfa:
    """A minimal deterministic automaton; state 0 is the start, no states at all mean no strings.

    `edges[s]` are the sorted disjoint `(lo, hi, target)` code point intervals of state `s`, both
    ends included. From every state something can be accepted. Made by `build`, which numbers the
    states breadth first, so that equal languages have equal fields.
    """

    edges: tuple[tuple[Edge, ...], ...]
    accepting: frozenset[int]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dfa):
            return NotImplemented
        return self is other or (self.accepting, self.edges) == (other.accepting, other.edges)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Dfa(states={len(self.edges)}, example={self.example() if self.edges else None!r})"

    @cached_property
    def _hash(self) -> int:
        return hash((self.edges, self.accepting))

    @cached_property
    def arrays(self) -> EdgeArrays:
        """The edges for machine code."""
        return EdgeArrays.of(self.edges)

    def step(self, state: int, code_point: int) -> int | None:
        """The state after one more character, or None when nothing can be accepted any more."""
        row = self.edges[state]
        index = bisect_right(row, (code_point, 0x110000, 0)) - 1
        return row[index][2] if index >= 0 and code_point <= row[index][1] else None

    def matches(self, text: str) -> bool:
        """Whether the whole text belongs to the language."""
        state: int | None = None if self.is_empty else 0
        for character in text:
            if state is None:
                return False
            state = self.step(state, ord(character))
        return state in self.accepting

    @property
    def is_empty(self) -> bool:
        """Whether no string at all is accepted."""
        return not self.edges

    @property
    def is_finite(self) -> bool:
        """Whether finitely many strings are accepted."""
        return self.is_empty or self.counts[0] is not None

    @cached_property
    def counts(self) -> tuple[int | None, ...]:
        """For each state how many strings are accepted from it: None infinite, at most COUNT_CAP.

        A finite number above COUNT_CAP is given as COUNT_CAP.
        """
        return tuple(self._count(COUNT_CAP))

    def count(self, limit: int = COUNT_CAP) -> int | None:
        """How many strings there are, at most `limit`; None when they are infinitely many."""
        if self.is_empty:
            return 0
        return self.counts[0] if limit == COUNT_CAP else self._count(limit)[0]

    def _count(self, cap: int) -> list[int | None]:
        found: list[int | None] = [None] * len(self.edges)
        for state in self._leaves_first:
            total = int(state in self.accepting)
            for lo, hi, target in self.edges[state]:
                total += (hi - lo + 1) * (found[target] or 0)
            found[state] = min(total, cap)
        return found

    @cached_property
    def _leaves_first(self) -> tuple[int, ...]:
        """The states with finitely many completions, each after all its targets."""
        targets = [len({edge[2] for edge in row}) for row in self.edges]
        sources = tables.predecessors(self.edges)
        order = [state for state, open_targets in enumerate(targets) if not open_targets]
        for state in order:
            for source in sources[state]:
                targets[source] -= 1
                if not targets[source]:
                    order.append(source)
        return tuple(order)

    @cached_property
    def distances(self) -> tuple[int, ...]:
        """For each state the length in code points of the shortest string accepted from it."""
        sources = tables.predecessors(self.edges)
        found = dict.fromkeys(sorted(self.accepting), 0)
        order = list(found)
        for state in order:
            for source in sources[state]:
                if source not in found:
                    found[source] = found[state] + 1
                    order.append(source)
        return tuple(found[state] for state in range(len(self.edges)))

    @property
    def min_length(self) -> int:
        """The length of the shortest string in code points; 0 for the empty language."""
        return self.distances[0] if self.edges else 0

    @cached_property
    def max_length(self) -> int | None:
        """The length of the longest string in code points; None when there is none such."""
        if self.is_empty:
            return 0
        longest: dict[int, int] = {}
        for state in self._leaves_first:
            longest[state] = max((1 + longest[edge[2]] for edge in self.edges[state]), default=0)
        return longest.get(0)

    def words(self, limit: int) -> Iterator[str]:
        """The first `limit` strings: shortest first, then by code points."""
        if self.is_empty:
            return
        longest = self.max_length
        sources = tables.predecessors(self.edges)
        layers = [self.accepting]  # layers[n]: the states that accept some string of length n
        while limit > 0 and (longest is None or len(layers) - 1 <= longest):
            if 0 in layers[-1]:
                for word in self._words_of(layers):
                    yield word
                    limit -= 1
                    if limit <= 0:
                        return
            layers.append(frozenset(source for state in layers[-1] for source in sources[state]))

    def _words_of(self, layers: Sequence[Collection[int]]) -> Iterator[str]:
        """The strings of length len(layers) - 1, by code points."""
        size = len(layers) - 1
        if size == 0:
            yield ""
            return
        path: list[str] = []
        open_steps = [self._choices(0, layers[size - 1])]
        while open_steps:
            step = next(open_steps[-1], None)
            if step is None:
                open_steps.pop()
                del path[-1:]
                continue
            path.append(step[0])
            if len(path) == size:
                yield "".join(path)
                path.pop()
            else:
                open_steps.append(self._choices(step[1], layers[size - len(path) - 1]))

    def _choices(self, state: int, layer: Collection[int]) -> Iterator[tuple[str, int]]:
        for lo, hi, target in self.edges[state]:
            if target in layer:
                for code_point in range(lo, hi + 1):
                    yield chr(code_point), target

    def example(self) -> str:
        """A shortest accepted string; raises ValueError when there is none."""
        if self.is_empty:
            raise ValueError("the empty language has no example")
        text: list[str] = []
        state = 0
        while state not in self.accepting:
            nearer = (e for e in self.edges[state] if self.distances[e[2]] < self.distances[state])
            lo, _, state = next(nearer)
            text.append(chr(lo))
        return "".join(text)


def build(
    table: Sequence[Row],
    accepting: Collection[int],
    *,
    is_minimal: bool = False,
    spell: Callable[[Row], Iterable[Edge]] | None = None,
) -> Dfa:
    """The canonical Dfa of a deterministic table whose state 0 is the start.

    `is_minimal` says that no two states have equal languages and that all are live. A table over
    other letters than code points comes with `spell`, which turns such a row into a proper one.
    """
    accepting = frozenset(accepting)
    if not accepting:
        return EMPTY
    block: Sequence[int] = range(len(table))
    if not is_minimal:
        table = tables.trim(table, accepting)
        block = tables.minimise(table, accepting)
    if not table[0] and 0 not in accepting:
        return EMPTY
    rows, accepting = tables.number(table, accepting, block, spell)
    return Dfa(tuple(map(tuple, rows)), accepting)


def explore(
    start: K,
    moves: Callable[[K], Iterable[tuple[int, int, K]]],
    accepts: Callable[[K], bool],
    budget: Budget | None = None,
) -> Dfa:
    """The Dfa of an automaton given as a function: `moves(key)` are sorted disjoint intervals."""
    budget = budget or Budget()
    numbers = {start: 0}
    keys = [start]
    table: list[Row] = []
    for key in keys:
        row: list[Edge] = []
        for lo, hi, target in moves(key):
            found = numbers.setdefault(target, len(keys))
            if found == len(keys):
                keys.append(target)
            row.append((lo, hi, found))
        budget.spend(len(row) + 1)
        budget.allow(len(keys))
        table.append(tables.coalesce(row))
    return build(table, [index for index, key in enumerate(keys) if accepts(key)])


EMPTY = Dfa((), frozenset())
"""The language without any string."""
EMPTY_TEXT = Dfa(((),), frozenset({0}))
"""The language of the empty string alone."""
ANY_TEXT = Dfa((tuple((lo, hi, 0) for lo, hi in UNIVERSE),), frozenset({0}))
"""The language of all strings."""


def any_text() -> Dfa:
    """All strings."""
    return ANY_TEXT


def literal(text: str) -> Dfa:
    """The one string `text`."""
    return literals((text,))


def literals(texts: Iterable[str]) -> Dfa:
    """Finitely many strings. A string with a lone surrogate cannot be written and is left out.

    Built as the minimal acyclic automaton of the sorted strings, in time linear in their size.
    """
    words = sorted({text for text in texts if not any("\ud800" <= c <= "\udfff" for c in text)})
    if not words:
        return EMPTY
    budget = Budget(MAX_LITERAL_STATES, max_work=4 * MAX_WORK)
    table: list[dict[int, int]] = [{}]
    accepting: set[int] = set()
    known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
    path = [0]  # the states of the last word, not yet shared with equal ones
    last = ""
    for word in words:
        shared = _shared_prefix(last, word)
        _share(table, accepting, known, path, last, shared)
        budget.spend(len(word) - shared + 1)
        for character in word[shared:]:
            table[path[-1]][ord(character)] = len(table)
            path.append(len(table))
            table.append({})
        accepting.add(path[-1])
        last = word
    _share(table, accepting, known, path, last, 0)
    budget.allow(len(known) + 1)
    return build([[(c, c, t) for c, t in row.items()] for row in table], accepting, is_minimal=True)


def _shared_prefix(left: str, right: str) -> int:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))


def _share(
    table: list[dict[int, int]],
    accepting: set[int],
    known: dict[tuple[bool, tuple[tuple[int, int], ...]], int],
    path: list[int],
    word: str,
    depth: int,
) -> None:
    """Replaces the states of `word` below `depth` by equal ones seen before."""
    while len(path) - 1 > depth:
        state = path.pop()
        key = (state in accepting, tuple(table[state].items()))
        table[path[-1]][ord(word[len(path) - 1])] = known.setdefault(key, state)


def length_between(minimum: int, maximum: int | None) -> Dfa:
    """All strings of `minimum` to `maximum` code points; None is no upper bound."""
    if maximum is not None and maximum < max(minimum, 0):
        return EMPTY
    last = max(minimum, 0) if maximum is None else maximum
    Budget().allow(last + 1)
    table = [_any_character(state + 1) for state in range(last)]
    table.append(_any_character(last) if maximum is None else ())
    return build(table, range(max(minimum, 0), last + 1), is_minimal=True)


def _any_character(target: int) -> tuple[Edge, ...]:
    return tuple((lo, hi, target) for lo, hi in UNIVERSE)


def union(*languages: Dfa) -> Dfa:
    """The strings of any of the languages."""
    return _fold(languages, EMPTY, _union)


def intersect(*languages: Dfa) -> Dfa:
    """The strings of all the languages; without arguments, all strings."""
    return _fold(languages, ANY_TEXT, _intersect)


def _fold(languages: Iterable[Dfa], neutral: Dfa, combine: Callable[[Dfa, Dfa], Dfa]) -> Dfa:
    """Combines the smallest two again and again, so that the intermediate ones stay small."""
    distinct = dict.fromkeys(languages)
    heap = [(len(dfa.edges), order, dfa) for order, dfa in enumerate(distinct)]
    heapq.heapify(heap)
    order = len(heap)
    while len(heap) > 1:
        left, right = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        combined = combine(left, right)
        heapq.heappush(heap, (len(combined.edges), order, combined))
        order += 1
    return heap[0][2] if heap else neutral


def _union(left: Dfa, right: Dfa) -> Dfa:
    if left.is_empty or right == ANY_TEXT:
        return right
    if right.is_empty or left == ANY_TEXT:
        return left
    return _product(left, right, lambda a, b: a or b)


def _intersect(left: Dfa, right: Dfa) -> Dfa:
    if left.is_empty or right == ANY_TEXT:
        return left
    if right.is_empty or left == ANY_TEXT:
        return right

    def moves(key: tuple[int, int]) -> Iterator[tuple[int, int, tuple[int, int]]]:
        for lo, hi, a, b in tables.common(left.edges[key[0]], right.edges[key[1]]):
            yield lo, hi, (a, b)

    return explore(
        (0, 0), moves, lambda key: key[0] in left.accepting and key[1] in right.accepting
    )


def difference(left: Dfa, right: Dfa) -> Dfa:
    """The strings of `left` that are not in `right`."""
    if left.is_empty or right.is_empty:
        return left
    return _product(left, right, lambda a, b: a and not b)


def complement(language: Dfa) -> Dfa:
    """All other strings."""
    return difference(ANY_TEXT, language)


Pair = tuple[int | None, int | None]


def _product(left: Dfa, right: Dfa, accepts: Callable[[bool, bool], bool]) -> Dfa:
    """Both automata side by side; None is the dead state. `accepts(False, False)` must be False."""
    needs_left = not accepts(False, True)

    def moves(key: Pair) -> Iterator[tuple[int, int, Pair]]:
        a, b = key
        rows = [left.edges[a] if a is not None else (), right.edges[b] if b is not None else ()]
        for lo, hi, targets in tables.overlay(rows):
            if targets[0] is not None or not needs_left:
                yield lo, hi, (targets[0], targets[1])

    start: Pair = (0, 0)
    return explore(
        start, moves, lambda key: accepts(key[0] in left.accepting, key[1] in right.accepting)
    )


Positions = tuple[int | None, frozenset[int]]


def concat(left: Dfa, right: Dfa, *others: Dfa) -> Dfa:
    """Every string of `left` followed by one of `right`, and so on."""
    if others:
        return concat(concat(left, right), *others)
    if left.is_empty or right.is_empty:
        return EMPTY
    entry = frozenset({0})

    def enter(state: int | None, inside: Iterable[int]) -> Positions:
        return state, frozenset(inside) | (entry if state in left.accepting else frozenset())

    def moves(key: Positions) -> Iterator[tuple[int, int, Positions]]:
        first = left.edges[key[0]] if key[0] is not None else ()
        for lo, hi, targets in tables.overlay([first, *(right.edges[q] for q in sorted(key[1]))]):
            yield lo, hi, enter(targets[0], (q for q in targets[1:] if q is not None))

    return explore(enter(0, ()), moves, lambda key: not right.accepting.isdisjoint(key[1]))


def is_subset(left: Dfa, right: Dfa) -> bool:
    """Whether every string of `left` is in `right`."""
    if left.is_empty or left == right:
        return True
    if right.is_empty:
        return False
    budget = Budget()
    seen = {(0, 0)}
    pending = [(0, 0)]
    while pending:
        a, b = pending.pop()
        if a in left.accepting and b not in right.accepting:
            return False
        budget.spend(len(left.edges[a]) + len(right.edges[b]))
        for _, _, targets in tables.overlay([left.edges[a], right.edges[b]]):
            if targets[0] is None:
                continue
            if targets[1] is None:  # from targets[0] something is accepted, for it is trimmed
                return False
            pair = (targets[0], targets[1])
            if pair not in seen:
                seen.add(pair)
                pending.append(pair)
    return True


def is_disjoint(left: Dfa, right: Dfa) -> bool:
    """Whether the languages share no string."""
    if left.is_empty or right.is_empty:
        return True
    budget = Budget()
    seen = {(0, 0)}
    pending = [(0, 0)]
    while pending:
        a, b = pending.pop()
        if a in left.accepting and b in right.accepting:
            return False
        budget.spend(len(left.edges[a]) + len(right.edges[b]))
        for _, _, *pair in tables.common(left.edges[a], right.edges[b]):
            if (pair[0], pair[1]) not in seen:
                seen.add((pair[0], pair[1]))
                pending.append((pair[0], pair[1]))
    return True
