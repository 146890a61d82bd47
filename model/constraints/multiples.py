"""Multiples of a step, so that exact arithmetic and a validator that divides floats both agree.

A validator may compute `value / step` in floats and ask whether that is whole; 19.99 is then no
multiple of 0.01. Only texts that are multiples in both senses are accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from model.constraints import dfa
from model.constraints.decimals import Form, Span, texts_between
from model.constraints.dfa import Dfa
from model.constraints.tables import TooComplex

EXACT_DIGITS = 15
"""Any number with at most this many digits is a float of its own."""
MAX_STEP = 15_000
"""A whole step up to which remainders are counted."""
MAX_STATES = 12_000
"""States for the remainders of all places together: large steps leave fewer digits."""
MAX_LISTED = 1_000
"""Multiples that are written out one by one, if there are no more within the bounds."""
WINDOW = 1_000_000
"""Decimals of the step's places, from zero or the lower bound on, that are judged one by one."""
MAX_WHOLE_PARTS = 10_000
"""Whole numbers from zero or the lower bound on whose decimals are judged."""
MAX_PLACES = 12
"""Decimal places a step may have."""


def is_multiple(value: Fraction, step: Fraction) -> bool:
    """Whether a number is a multiple, exactly and to a validator that divides floats."""
    if (value / step).denominator != 1:
        return False
    quotient: float = float(value) / float(step)
    return quotient.is_integer()


def whole_multiples(step: int, span: Span, form: Form) -> Dfa:
    """Texts of the integers in `span` that are multiples of a whole number."""
    form = replace(form, digits=min(form.digits, EXACT_DIGITS))
    listed = _listed(step, span, form)
    if listed is not None:
        return dfa.intersect(texts_between(span, form), listed)
    if step > MAX_STEP:
        raise TooComplex(f"multiples of {step}, which is above {MAX_STEP}, without narrow bounds")
    remainders = _remainders(step, 0)
    form = replace(form, digits=min(form.digits, MAX_STATES // len(remainders.edges)))
    texts = dfa.intersect(texts_between(span, form), remainders)
    if texts.is_empty or form.digits < len(str(step)) + 3:
        raise TooComplex(f"multiples of {step} with more than {form.digits} digits")
    return texts


@lru_cache(maxsize=4)
def _remainders(step: int, places: int) -> Dfa:
    """Texts without exponent whose value times 10**places is a multiple of `step`.

    A state is (places read, remainder); before the point -1 places are read.
    """
    scales: list[int] = [10 ** (places - read) for read in range(places + 1)]

    def moves(state: tuple[int, int]) -> Iterator[tuple[int, int, tuple[int, int]]]:
        read, rest = state
        if read < 0:
            yield ord("-"), ord("-"), state
            if places or rest == 0:
                yield ord("."), ord("."), (0, rest)
        for digit in range(10):
            if read < places:
                after = (read + 1 if read >= 0 else read, (rest * 10 + digit) % step)
                yield ord("0") + digit, ord("0") + digit, after
            elif digit == 0:
                yield ord("0"), ord("0"), state

    def accepts(state: tuple[int, int]) -> bool:
        read, rest = state
        return rest * scales[max(read, 0)] % step == 0

    return dfa.explore((-1, 0), moves, accepts)


def _listed(step: int, span: Span, form: Form) -> Dfa | None:
    """The multiples one by one, if they are few."""
    limit = Fraction(10**form.digits - 1)
    low = -limit if span.low is None else max(-limit, span.low)
    high = limit if span.high is None else min(limit, span.high)
    first, last = -(-low // step), high // step
    if last - first >= MAX_LISTED:
        return None
    whole = [str(step * n) for n in range(first, last + 1)]
    zero = ["-0"] if first <= 0 <= last else []
    ends = ("", ".0", ".00", ".000")
    return dfa.literals(text + end for text in whole + zero for end in ends)


def decimal_multiples(step: Fraction, span: Span) -> Dfa:
    """Texts, without exponents, of the numbers in `span` that are multiples of a decimal."""
    places = next((n for n in range(MAX_PLACES + 1) if 10**n % step.denominator == 0), None)
    if places is None:
        raise TooComplex(f"multiples of a number with more than {MAX_PLACES} decimal places")
    near = _least_magnitude(span)
    if near >= 10 ** (EXACT_DIGITS - places):
        raise TooComplex(f"multiples of {float(step)} with more than {EXACT_DIGITS} digits")
    in_span = texts_between(span, Form(digits=EXACT_DIGITS - places, most=places))
    parts = []
    if divides_exactly(step) and step * 10**places <= MAX_STEP:
        exact = dfa.intersect(in_span, _remainders(int(step * 10**places), places))
        parts.append(dfa.intersect(exact, _binary_texts(places)))
    if step.denominator & (step.denominator - 1):  # else every multiple has a binary fraction
        parts.append(dfa.intersect(in_span, _judged(step, places, near // step)))
    return dfa.union(*parts)


def divides_exactly(step: Fraction) -> bool:
    """Whether every float that is a multiple of the step divides to a whole number in floats.

    The quotient is whole times (1 + e), e being the relative error of the step's own float, and
    rounds to the whole number if e is below 2**-54.
    """
    nearest = Fraction(float(step))
    return abs(nearest - step) / nearest < Fraction(1, 2**54)


def _least_magnitude(span: Span) -> Fraction:
    return max(Fraction(0), span.low or Fraction(0), -(span.high or Fraction(0)))


@lru_cache(maxsize=16)
def _binary_texts(places: int) -> Dfa:
    """Number texts with up to `places` decimals whose fraction is a sum of powers of two."""
    fractions = ["", *(
        f".{n:0{size}d}" for size in range(1, places + 1) for n in range(0, 10**size, 5**size)
    )]  # fmt: skip
    return dfa.concat(texts_between(Span(), Form(most=0)), dfa.literals(fractions))


@lru_cache(maxsize=8)
def _judged(step: Fraction, places: int, skipped: int) -> Dfa:
    """Texts of the multiples from `skipped` steps on that float division finds to be whole."""
    scale = 10**places
    first = int(skipped * step)
    window = WINDOW if places <= 3 else WINDOW // 10  # more places share less of the tree
    if scale > window:
        near = (step * (skipped + n) for n in range(MAX_LISTED))
        return dfa.literals(_decimal(value, places) for value in near if is_multiple(value, step))
    count = min(MAX_WHOLE_PARTS, window // scale)
    return _tree(_tens(_holds(step, scale, first, count)), places, first)


def _decimal(value: Fraction, places: int) -> str:
    whole, part = divmod(int(value * 10**places), 10**places)
    return f"{whole}.{part:0{places}d}".rstrip("0").rstrip(".")


def _holds(step: Fraction, scale: int, first: int, count: int) -> NDArray[np.bool_]:
    """For each number of `count` whole parts from `first` on, in steps of 1/scale: is it right."""
    scaled = np.arange(first * scale, (first + count) * scale, dtype=np.int64)
    quotients = scaled / scale / float(step)
    holds: NDArray[np.bool_] = np.floor(quotients) == quotients
    holds &= scaled % int(step * scale) == 0
    return holds


def _tens(holds: NDArray[np.bool_]) -> list[int]:
    """Ten neighbours at a time as the bits of a number, the first the lowest."""
    tens: list[int] = (holds.reshape(-1, 10) @ (1 << np.arange(10))).tolist()
    return tens


def _tree(tens: list[int], places: int, first: int) -> Dfa:
    """The texts of the numbers that hold, the first of which is `first`: a tree of digits.

    Built from the leaves, with equal parts shared, so that it is minimal.
    """
    nodes = _Nodes()
    level = nodes.last_digits(tens, is_fraction=places > 1)
    for size in range(places - 1, 0, -1):
        level = nodes.parents(level, is_fraction=size > 1)
    whole = dict(enumerate(level, first))
    shorter = {number // 10**n for number in whole for n in range(len(str(number)))}
    found: dict[int, int] = {}
    for number in sorted({*whole, *shorter}, reverse=True):
        point = whole.get(number)
        children = [] if point is None else [(ord("."), point)]
        if number:
            children += nodes.digits(found.get(10 * number + digit) for digit in range(10))
        node = nodes.add(point is not None and nodes.accepts_zero(point), children)
        if node is not None:
            found[number] = node
    digits = nodes.digits(map(found.get, range(10)))
    minus = nodes.add(False, digits)
    if minus is None:
        return dfa.EMPTY
    return nodes.language(nodes.add(False, [(ord("-"), minus), *digits]) or 0)


class _Nodes:
    """The states of an automaton without loops, each made after all its targets."""

    def __init__(self) -> None:
        self._known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
        self._parents: dict[tuple[bool, tuple[int | None, ...]], int | None] = {}
        self._list: list[tuple[bool, tuple[tuple[int, int], ...]]] = []

    def add(self, accepting: bool, children: Iterable[tuple[int, int]]) -> int | None:
        """The state with these edges; None if nothing is accepted from it."""
        key = (accepting, tuple(children))
        if not accepting and not key[1]:
            return None
        if key not in self._known:
            self._known[key] = len(self._list)
            self._list.append(key)
        return self._known[key]

    def digits(self, targets: Iterable[int | None]) -> list[tuple[int, int]]:
        """Edges for the digits 0 to 9."""
        return [(ord("0") + digit, node) for digit, node in enumerate(targets) if node is not None]

    def last_digits(self, tens: list[int], *, is_fraction: bool) -> list[int | None]:
        """The states before the last digit, which may be any whose bit is set."""
        leaf = self.add(True, ())
        nodes: dict[int, int | None] = {}
        for bits in set(tens):
            digits = self.digits(leaf if bits >> digit & 1 else None for digit in range(10))
            nodes[bits] = self.add(is_fraction and bool(bits & 1), digits)
        return [nodes[bits] for bits in tens]

    def parents(self, level: list[int | None], *, is_fraction: bool) -> list[int | None]:
        """The states whose digits lead to ten of `level` each; 1.5 holds if 1.50 does."""
        parents: list[int | None] = []
        for at in range(0, len(level), 10):
            key = (is_fraction, tuple(level[at : at + 10]))
            if key not in self._parents:
                digits = self.digits(key[1])
                accepting = is_fraction and key[1][0] is not None and self._list[key[1][0]][0]
                self._parents[key] = self.add(accepting, digits)
            parents.append(self._parents[key])
        return parents

    def accepts_zero(self, node: int) -> bool:
        """Whether a 0 may follow and be the last digit."""
        return any(char == ord("0") and self._list[at][0] for char, at in self._list[node][1])

    def language(self, start: int) -> Dfa:
        """What is accepted from a state that no edge leads to."""
        order = [start, *(at for at in range(len(self._list)) if at != start)]
        numbers = {node: number for number, node in enumerate(order)}
        table = [[(c, c, numbers[at]) for c, at in self._list[node][1]] for node in order]
        accepting = [number for node, number in numbers.items() if self._list[node][0]]
        return dfa.build(table, accepting, is_minimal=True)
