"""Regular languages: the algebra against Python sets of strings, the canonical form, the bounds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.constraints import dfa
from model.constraints.dfa import EMPTY, EMPTY_TEXT, Dfa, TooComplex

ALPHABET = "abé😀"
SHORT = [
    "".join(letters) for size in range(5) for letters in itertools.product(ALPHABET, repeat=size)
]
word_sets = st.sets(st.text(alphabet=ALPHABET, max_size=4), max_size=8)


def language(automaton: Dfa) -> set[str]:
    return {word for word in SHORT if automaton.matches(word)}


@settings(deadline=None)
@given(word_sets, word_sets)
def test_algebra_agrees_with_sets(left: set[str], right: set[str]) -> None:
    a, b = dfa.literals(left), dfa.literals(right)
    assert language(dfa.union(a, b)) == left | right
    assert language(dfa.intersect(a, b)) == left & right
    assert language(dfa.difference(a, b)) == left - right
    assert language(dfa.complement(a)) == set(SHORT) - left
    assert language(dfa.concat(a, b)) == {x + y for x in left for y in right} & set(SHORT)
    assert dfa.is_subset(a, b) == (left <= right)
    assert dfa.is_disjoint(a, b) == left.isdisjoint(right)


@settings(deadline=None)
@given(word_sets, word_sets, word_sets)
def test_equal_languages_are_equal_objects(x: set[str], y: set[str], z: set[str]) -> None:
    a, b, c = map(dfa.literals, (x, y, z))
    one = dfa.complement(dfa.union(a, dfa.intersect(b, c)))
    other = dfa.intersect(
        dfa.complement(a), dfa.union(dfa.complement(b), dfa.complement(c)), dfa.any_text()
    )
    assert one == other
    assert hash(one) == hash(other)
    assert dfa.complement(dfa.complement(a)) == a
    assert dfa.literals(x | y) == dfa.union(a, b)


@settings(deadline=None)
@given(word_sets)
def test_words_counts_and_lengths(words: set[str]) -> None:
    automaton = dfa.literals(words)
    assert list(automaton.words(1000)) == sorted(words, key=lambda w: (len(w), w))
    assert automaton.count(1000) == len(words)
    assert automaton.is_finite
    if words:
        lengths = [len(word) for word in words]
        assert (automaton.min_length, automaton.max_length) == (min(lengths), max(lengths))
        assert automaton.example() in words
        assert automaton.counts[0] == len(words)


@settings(deadline=None)
@given(st.integers(0, 6), st.integers(0, 6), st.text(max_size=8))
def test_length_between(low: int, high: int, text: str) -> None:
    plain = text.encode("utf-8", "ignore").decode()
    assert dfa.length_between(low, high).matches(plain) == (low <= len(plain) <= high)
    assert dfa.length_between(low, None).matches(plain) == (low <= len(plain))


def test_every_state_can_still_accept() -> None:
    automaton = dfa.intersect(dfa.length_between(2, 3), dfa.literals(["a", "ab", "abcd"]))
    assert list(automaton.words(10)) == ["ab"]
    assert len(automaton.edges) == 3
    assert automaton.step(0, ord("b")) is None


def test_infinite_languages() -> None:
    starts = dfa.concat(dfa.literal("x"), dfa.any_text())
    assert starts.count() is None
    assert starts.max_length is None
    assert not starts.is_finite
    assert starts.counts[0] is None
    assert list(starts.words(3)) == ["x", "x\0", "x\1"]
    assert dfa.union(starts, EMPTY_TEXT).counts == (None, None)


def test_counts_saturate() -> None:
    wide = dfa.length_between(0, 30)
    assert wide.counts[0] == dfa.COUNT_CAP
    assert wide.count(10) == 10
    assert wide.count(10**8) == 10**8
    assert dfa.length_between(1, 1).count(10**8) == 0x110000 - 0x800


def test_the_empty_language() -> None:
    assert EMPTY.is_empty
    assert EMPTY.is_finite
    assert EMPTY.count() == 0
    assert not EMPTY.matches("")
    assert list(EMPTY.words(3)) == []
    assert dfa.complement(dfa.any_text()) == EMPTY == dfa.literals([]) == dfa.length_between(3, 2)
    assert dfa.complement(EMPTY) == dfa.any_text()
    assert dfa.union() == EMPTY
    assert dfa.intersect() == dfa.any_text()
    with pytest.raises(ValueError, match="no example"):
        EMPTY.example()


def test_surrogates_are_outside_every_language() -> None:
    assert not dfa.any_text().matches("\ud800")
    assert dfa.literals(["\ud83d", "a"]) == dfa.literal("a")
    assert not dfa.complement(dfa.literal("a")).matches("\udfff")


def test_thousands_of_words() -> None:
    words = {f"{n * n:x}-{n:04d}" for n in range(5000)}
    automaton = dfa.literals(words)
    assert automaton.count() == 5000
    assert all(automaton.matches(word) for word in words)
    assert not automaton.matches("0-0001")


def test_long_words_and_deep_automata_do_not_recurse() -> None:
    text = "ab" * 5000
    automaton = dfa.literal(text)
    assert automaton.matches(text)
    assert automaton.example() == text
    assert dfa.intersect(automaton, dfa.length_between(0, 15_000)) == automaton
    assert list(automaton.words(2)) == [text]


def test_bounds_are_errors() -> None:
    with pytest.raises(TooComplex, match="states"):
        dfa.length_between(0, dfa.MAX_STATES + 1)
    a = dfa.explore(0, lambda s: [(97, 97, (s + 1) % 997)], lambda s: s == 0)
    b = dfa.explore(0, lambda s: [(97, 97, (s + 1) % 991)], lambda s: s == 0)
    with pytest.raises(TooComplex, match="states"):
        dfa.intersect(a, b)


def test_build_minimises_and_trims() -> None:
    table = [[(97, 97, 1), (98, 98, 2), (99, 99, 3)], [(100, 100, 1)], [(100, 100, 2)], []]
    automaton = dfa.build(table, {1, 2})
    assert automaton.edges == (((97, 98, 1),), ((100, 100, 1),))
    assert automaton.accepting == {1}
    assert automaton.distances == (1, 0)
