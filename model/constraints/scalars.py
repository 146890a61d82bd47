"""Sets of scalar values, and the evaluation of a formula to such a set.

A set is asked for from inside (every member satisfies the schema) or from outside (every value
that satisfies it is a member). The two differ only where pattern dialects do; a negation turns one
into the other, and what is enforced is always an inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from typing import Generic, Protocol, TypeVar

from model.constraints import dfa, numbers
from model.constraints.dfa import ANY_TEXT, Dfa, TooComplex
from model.constraints.document import Draft, Place
from model.constraints.formats import format_texts
from model.constraints.formula import And, Formula, Not, One, Or, Own, Type, Values, type_of
from model.constraints.regex import UnsupportedPattern, compile_pattern
from model.constraints.shapes import StringLang

MAX_ALTERNATIVES = 64

S = TypeVar("S")


class Algebra(Protocol[S]):
    """The sets of one scalar type."""

    everything: S
    nothing: S

    def leaf(self, leaf: Own | Values, *, inside: bool) -> S: ...
    def complement(self, values: S) -> S: ...
    def meet(self, left: S, right: S) -> S: ...
    def join(self, left: S, right: S) -> S: ...
    def is_disjoint(self, left: S, right: S) -> bool: ...


class Evaluator(Generic[S]):
    """Turns formulas into sets of an algebra."""

    def __init__(self, algebra: Algebra[S]) -> None:
        self.algebra = algebra
        self._known: dict[tuple[Formula, bool, bool], S] = {}

    def evaluate(self, formula: Formula, *, positive: bool = True, inside: bool = True) -> S:
        """The set of the formula, or of its negation, from inside or outside."""
        key = (formula, positive, inside)
        if key not in self._known:
            self._known[key] = self._evaluate(formula, positive, inside)
        return self._known[key]

    def _evaluate(self, formula: Formula, positive: bool, inside: bool) -> S:
        if isinstance(formula, Not):
            return self.evaluate(formula.part, positive=not positive, inside=inside)
        if isinstance(formula, One):
            return self._one(formula, positive, inside)
        if isinstance(formula, And | Or):
            parts = [self.evaluate(p, positive=positive, inside=inside) for p in formula.parts]
            return self._all(parts) if isinstance(formula, And) == positive else self._any(parts)
        assert isinstance(formula, Own | Values)  # scalars have nothing unevaluated
        if positive:
            return self.algebra.leaf(formula, inside=inside)
        return self.algebra.complement(self.algebra.leaf(formula, inside=not inside))

    def _all(self, parts: Iterable[S]) -> S:
        return reduce(self.algebra.meet, parts, self.algebra.everything)

    def _any(self, parts: Iterable[S]) -> S:
        return reduce(self.algebra.join, parts, self.algebra.nothing)

    def _one(self, formula: One, positive: bool, inside: bool) -> S:
        parts = [self.evaluate(part, inside=inside) for part in formula.parts]
        outer = [self.evaluate(part, inside=False) for part in formula.parts]
        if positive:
            return self._any(
                self._only(formula, parts, outer, i, inside) for i in range(len(parts))
            )
        pairs = (
            self.algebra.meet(left, right)
            for index, left in enumerate(parts)
            for right in parts[index + 1 :]
        )
        none = self._all(self.evaluate(p, positive=False, inside=inside) for p in formula.parts)
        return self.algebra.join(none, self._any(pairs))

    def _only(self, formula: One, parts: list[S], outer: list[S], index: int, inside: bool) -> S:
        """What part `index` allows and no other part does."""
        left = parts[index]
        for other, part in enumerate(formula.parts):
            if other != index and not self.algebra.is_disjoint(left, outer[other]):
                left = self.algebra.meet(left, self.evaluate(part, positive=False, inside=inside))
        return left


class NullAlgebra:
    """Whether null is allowed."""

    everything, nothing = True, False

    def leaf(self, leaf: Own | Values, *, inside: bool) -> bool:
        return isinstance(leaf, Own) or bool(listed(leaf, Type.NULL))

    def complement(self, values: bool) -> bool:
        return not values

    def meet(self, left: bool, right: bool) -> bool:
        return left and right

    def join(self, left: bool, right: bool) -> bool:
        return left or right

    def is_disjoint(self, left: bool, right: bool) -> bool:
        return not (left and right)


class BooleanAlgebra:
    """Which of true and false are allowed."""

    everything: frozenset[bool] = frozenset({True, False})
    nothing: frozenset[bool] = frozenset()

    def leaf(self, leaf: Own | Values, *, inside: bool) -> frozenset[bool]:
        return (
            frozenset(map(bool, listed(leaf, Type.BOOLEAN)))
            if isinstance(leaf, Values)
            else self.everything
        )

    def complement(self, values: frozenset[bool]) -> frozenset[bool]:
        return self.everything - values

    def meet(self, left: frozenset[bool], right: frozenset[bool]) -> frozenset[bool]:
        return left & right

    def join(self, left: frozenset[bool], right: frozenset[bool]) -> frozenset[bool]:
        return left | right

    def is_disjoint(self, left: frozenset[bool], right: frozenset[bool]) -> bool:
        return left.isdisjoint(right)


def listed(leaf: Own | Values, type_: Type) -> list[object]:
    """The values of the type that an `enum` or `const` lists."""
    assert isinstance(leaf, Values)
    value = leaf.place.keywords[leaf.keyword]
    values = value if leaf.keyword == "enum" else [value]
    return [value for value in values if type_of(value) is type_]


def _refusing(place: Place, keyword: str, build: Callable[[], Dfa]) -> Dfa:
    try:
        return build()
    except UnsupportedPattern as error:
        raise place.refuse(keyword, f"the pattern cannot be enforced: {error}") from None
    except TooComplex as error:
        raise place.refuse(keyword, f"too complex: {error}", "simplify it") from None


def pattern_texts(place: Place, keyword: str, pattern: object, *, inside: bool) -> Dfa:
    """The texts in which a pattern is found; refuses at `place` what cannot be enforced."""
    if not isinstance(pattern, str):
        raise place.refuse(keyword, f"{keyword} must hold regular expressions")
    return _refusing(place, keyword, lambda: compile_pattern(pattern, wide=not inside))


@dataclass(frozen=True)
class Strings:
    """A union of listed words and of languages."""

    words: frozenset[str]
    langs: tuple[StringLang, ...]


class StringAlgebra:
    """Sets of strings."""

    everything = Strings(frozenset(), (StringLang(ANY_TEXT),))
    nothing = Strings(frozenset(), ())

    def leaf(self, leaf: Own | Values, *, inside: bool) -> Strings:
        if isinstance(leaf, Values):
            return Strings(frozenset(map(str, listed(leaf, Type.STRING))), ())
        place = leaf.place
        texts = ANY_TEXT
        if "pattern" in place.keywords:
            texts = pattern_texts(place, "pattern", place.keywords["pattern"], inside=inside)
        if inside and isinstance(name := place.keywords.get("format"), str):
            format_ = _refusing(place, "format", lambda: format_texts(name) or ANY_TEXT)
            texts = _refusing(place, "format", lambda: dfa.intersect(texts, format_))
        return _some((StringLang(texts, place.count("minLength") or 0, place.count("maxLength")),))

    def complement(self, values: Strings) -> Strings:
        result = self.everything
        if values.words:
            result = _some((StringLang(dfa.complement(dfa.literals(values.words))),))
        for lang in values.langs:
            outside = [StringLang(dfa.complement(lang.dfa))]
            if lang.minimum:
                outside.append(StringLang(ANY_TEXT, 0, lang.minimum - 1))
            if lang.maximum is not None:
                outside.append(StringLang(ANY_TEXT, lang.maximum + 1))
            result = self.meet(result, _some(outside))
        return result

    def meet(self, left: Strings, right: Strings) -> Strings:
        if left is self.everything or right is self.everything:
            return right if left is self.everything else left
        words = frozenset(w for w in left.words if _has(right, w))
        words |= frozenset(w for w in right.words if _has(left, w))
        pairs = product(left.langs, right.langs)
        return Strings(words, _some(_meet(a, b) for a, b in pairs).langs)

    def join(self, left: Strings, right: Strings) -> Strings:
        words = left.words | right.words
        return Strings(words, _some((*left.langs, *right.langs)).langs)

    def is_disjoint(self, left: Strings, right: Strings) -> bool:
        met = self.meet(left, right)
        return not met.words and not met.langs


def string_langs(values: Strings) -> tuple[StringLang, ...]:
    """The set as languages, the words as one of them."""
    if not values.words:
        return values.langs
    words = dfa.literals(values.words)
    return ((StringLang(words), *values.langs)) if not words.is_empty else values.langs


def _some(langs: Iterable[StringLang]) -> Strings:
    """The union of languages: those without counted lengths as one, the rest side by side."""
    kept = [lang for lang in dict.fromkeys(langs) if not lang.is_empty]
    counted = [lang for lang in kept if lang.is_counted]
    free = [lang.dfa for lang in kept if not lang.is_counted]
    if len(counted) > MAX_ALTERNATIVES:
        raise TooComplex(f"more than {MAX_ALTERNATIVES} alternatives of bounded strings")
    if ANY_TEXT in free:
        return StringAlgebra.everything
    united = [StringLang(dfa.union(*free))] if free else []
    return Strings(frozenset(), (*united, *counted))


def _meet(left: StringLang, right: StringLang) -> StringLang:
    bounds = [m for m in (left.maximum, right.maximum) if m is not None]
    return StringLang(
        dfa.intersect(left.dfa, right.dfa),
        max(left.minimum, right.minimum),
        min(bounds) if bounds else None,
    )


def _has(values: Strings, word: str) -> bool:
    return word in values.words or any(
        len(word) >= lang.minimum
        and (lang.maximum is None or len(word) <= lang.maximum)
        and lang.dfa.matches(word)
        for lang in values.langs
    )


@dataclass(frozen=True)
class NumberRange:
    """Numbers between bounds: all, only the integers, or only the others (`is_integer`)."""

    minimum: Fraction | None = None
    maximum: Fraction | None = None
    above: bool = False
    """`minimum` itself is excluded."""
    below: bool = False
    """`maximum` itself is excluded."""
    is_integer: bool | None = None
    multiples: frozenset[Fraction] = frozenset()
    excluded: frozenset[Fraction] = frozenset()
    whole_digits_only: bool = False
    """Draft 4: 1.0 is not an integer."""

    def holds(self, value: Fraction) -> bool:
        """Whether a number is inside."""
        if self.minimum is not None and (
            value < self.minimum or (self.above and value == self.minimum)
        ):
            return False
        if self.maximum is not None and (
            value > self.maximum or (self.below and value == self.maximum)
        ):
            return False
        if self.is_integer is not None and (value.denominator == 1) != self.is_integer:
            return False
        return value not in self.excluded and all(
            numbers.is_multiple(value, step) for step in self.multiples
        )

    @property
    def is_empty(self) -> bool:
        if self.minimum is None or self.maximum is None:
            return False
        low, high = self.minimum, self.maximum
        if low > high or (low == high and not self.holds(low)):
            return True
        if self.is_integer:
            first = -(-low.numerator // low.denominator) + (
                1 if self.above and low.denominator == 1 else 0
            )
            last = high.numerator // high.denominator - (
                1 if self.below and high.denominator == 1 else 0
            )
            return first > last
        return False


@dataclass(frozen=True)
class Numbers:
    """A union of listed values and of ranges."""

    values: frozenset[Fraction]
    ranges: tuple[NumberRange, ...]
    whole_digits_only: bool = False
    """Draft 4: the values must be written without a point."""


class NumberAlgebra:
    """Sets of numbers, by value."""

    everything = Numbers(frozenset(), (NumberRange(),))
    nothing = Numbers(frozenset(), ())

    def leaf(self, leaf: Own | Values, *, inside: bool) -> Numbers:
        if isinstance(leaf, Values):
            return Numbers(frozenset(map(_exactly, listed(leaf, Type.NUMBER))), ())
        if "$integer" in leaf.place.keywords:
            is_old = leaf.place.keywords["$integer"] == Draft.D4
            return _ranges((NumberRange(is_integer=True, whole_digits_only=is_old),))
        return _ranges((_own_range(leaf.place),))

    def complement(self, values: Numbers) -> Numbers:
        result = self.everything
        if values.values:
            result = Numbers(frozenset(), (NumberRange(excluded=values.values),))
        for range_ in values.ranges:
            result = self.meet(result, _ranges(_outside(range_)))
        return result

    def meet(self, left: Numbers, right: Numbers) -> Numbers:
        values = frozenset(v for v in left.values if _holds(right, v))
        values |= frozenset(v for v in right.values if _holds(left, v))
        ranges = _ranges(_meet_ranges(a, b) for a, b in product(left.ranges, right.ranges)).ranges
        return Numbers(values, ranges, _is_whole(left) or _is_whole(right))

    def join(self, left: Numbers, right: Numbers) -> Numbers:
        ranges = _ranges((*left.ranges, *right.ranges)).ranges
        return Numbers(
            left.values | right.values, ranges, left.whole_digits_only or right.whole_digits_only
        )

    def is_disjoint(self, left: Numbers, right: Numbers) -> bool:
        met = self.meet(left, right)
        return not met.values and not met.ranges


def _exactly(value: object) -> Fraction:
    """The number a literal stands for: as written, but a large float as what it is stored as."""
    assert isinstance(value, int | float)
    is_large = isinstance(value, float) and abs(value) >= 2**53
    return Fraction(value) if is_large else Fraction(str(value))


def _is_whole(values: Numbers) -> bool:
    return values.whole_digits_only or any(r.whole_digits_only for r in values.ranges)


def _own_range(place: Place) -> NumberRange:
    low, high = place.number("minimum"), place.number("maximum")
    above = below = False
    if place.draft == Draft.D4:
        above = _flag(place, "exclusiveMinimum") and low is not None
        below = _flag(place, "exclusiveMaximum") and high is not None
    else:
        over, under = _exclusive(place, "exclusiveMinimum"), _exclusive(place, "exclusiveMaximum")
        if over is not None and (low is None or over >= low):
            low, above = over, True
        if under is not None and (high is None or under <= high):
            high, below = under, True
    step = place.number("multipleOf")
    if step is not None and step <= 0:
        raise place.refuse("multipleOf", "multipleOf must be greater than 0")
    multiples = frozenset() if step is None else frozenset({step})
    return NumberRange(low, high, above, below, None, multiples)


def _flag(place: Place, keyword: str) -> bool:
    value = place.keywords.get(keyword, False)
    if not isinstance(value, bool):
        raise place.refuse(keyword, f"{keyword} must be true or false in draft 4")
    return value


def _exclusive(place: Place, keyword: str) -> Fraction | None:
    if isinstance(place.keywords.get(keyword), bool):
        raise place.refuse(
            keyword,
            f"{keyword} must be a number",
            "true and false are draft 4's form: write the bound itself, or name draft 4 in $schema",
        )
    return place.number(keyword)


def _ranges(ranges: Iterable[NumberRange]) -> Numbers:
    kept = tuple(range_ for range_ in dict.fromkeys(ranges) if not range_.is_empty)
    if len(kept) > MAX_ALTERNATIVES:
        raise TooComplex(f"more than {MAX_ALTERNATIVES} alternative ranges of numbers")
    return Numbers(frozenset(), kept)


def _meet_ranges(left: NumberRange, right: NumberRange) -> NumberRange:
    both = [r for r in (left, right) if r.minimum is not None]
    low = max(both, key=lambda r: (r.minimum or 0, r.above), default=NumberRange())
    both = [r for r in (left, right) if r.maximum is not None]
    high = min(both, key=lambda r: (r.maximum or 0, not r.below), default=NumberRange())
    kinds = {left.is_integer, right.is_integer} - {None}
    if len(kinds) == 2:  # integers that are none: an empty range says so
        return NumberRange(Fraction(1), Fraction(0))
    return NumberRange(
        low.minimum,
        high.maximum,
        low.above,
        high.below,
        kinds.pop() if kinds else None,
        left.multiples | right.multiples,
        left.excluded | right.excluded,
        left.whole_digits_only or right.whole_digits_only,
    )


def _outside(range_: NumberRange) -> Iterable[NumberRange]:
    """Ranges that together hold every number outside `range_`, and no other."""
    if range_.minimum is not None:
        yield NumberRange(maximum=range_.minimum, below=not range_.above)
    if range_.maximum is not None:
        yield NumberRange(minimum=range_.maximum, above=not range_.below)
    if range_.is_integer is not None:
        yield NumberRange(is_integer=not range_.is_integer)
    for value in range_.excluded:
        yield NumberRange(value, value)
    for step in range_.multiples:
        # Inside each gap between neighbouring multiples; finitely many can be written down.
        raise TooComplex(f"the numbers that are no multiple of {step}")


def _holds(values: Numbers, value: Fraction) -> bool:
    return value in values.values or any(range_.holds(value) for range_ in values.ranges)


def number_langs(values: Numbers, *, canonical: bool = False) -> tuple[StringLang, ...]:
    """The JSON texts of the numbers, as one language; `canonical` writes each number one way."""
    has_point = not values.whole_digits_only
    parts = [
        numbers.number_literal(_plain(value), allow_decimal_zero=has_point)
        for value in values.values
    ]
    parts += [_range_texts(range_) for range_ in values.ranges]
    texts = dfa.union(*parts)
    if canonical:
        texts = dfa.intersect(texts, numbers.canonical_texts())
    return () if texts.is_empty else (StringLang(texts),)


def _plain(value: Fraction) -> int | float:
    is_large = 2**53 <= abs(value) < 2**1023 and Fraction(float(value)) == value
    return float(value) if value.denominator != 1 or is_large else value.numerator


def _range_texts(range_: NumberRange) -> Dfa:
    limits = (range_.minimum, range_.maximum, range_.above, range_.below)
    has_point = not range_.whole_digits_only
    steps: list[Fraction | None] = [*sorted(range_.multiples)] or [None]
    if range_.is_integer:
        each = [numbers.integer_texts(*limits, s, allow_decimal_zero=has_point) for s in steps]
    else:
        each = [numbers.number_texts(*limits, s) for s in steps]
    texts = dfa.intersect(*each)
    if range_.is_integer is False:
        texts = numbers.fractional(texts)
    if range_.excluded:
        texts = numbers.excluding(texts, [_plain(value) for value in range_.excluded])
    return texts
