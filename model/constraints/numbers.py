"""JSON number texts by value: integers, numbers, multiples, and single numbers.

Everything accepted is valid twice: by the decimal it spells, and to a validator such as jsonschema
that reads a text with point or exponent as the nearest float. Rounding to floats is monotone, so a
bound moved to the decimal spelling of a float inside it holds for both. In return some valid texts
are left out, namely

- more than MAX_DIGITS digits before and MAX_FRACTION after the point,
- exponents of more than MAX_EXPONENT, so that no text reads as infinity,
- exponents that Python would not write, if there are bounds; for integers also those of small
  numbers, and between two bounds all; with multiples all,
- an integer with a point and more than 15 digits, or more than three zeros.

What Python's and JavaScript's JSON writers write is inside, but for exponents beside multiples.
These languages are therefore never to be complemented: state the opposite bounds instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from model.constraints import dfa
from model.constraints.decimals import (
    MAX_DIGITS,
    MAX_EXPONENT,
    MAX_FRACTION,
    Form,
    Span,
    exponents,
    scientific_texts,
    texts_between,
)
from model.constraints.dfa import Dfa
from model.constraints.dfa_cache import DfaCache
from model.constraints.multiples import (
    EXACT_DIGITS,
    decimal_multiples,
    divides_exactly,
    is_multiple,
    whole_multiples,
)
from model.constraints.regex import compile_pattern
from model.constraints.tables import TooComplex

__all__ = [
    "MAX_DIGITS", "MAX_EXPONENT", "MAX_FRACTION", "canonical_number", "canonical_texts",
    "excluding", "fractional", "integer_texts", "is_multiple", "number_literal", "number_texts",
]  # fmt: skip

_MANTISSA_DIGITS = 17
_WHOLE_FLOAT = 16
"""From this power of ten on every float is whole."""
_SMALL, _LARGE = (-MAX_EXPONENT, -5), (_WHOLE_FLOAT, MAX_EXPONENT)
"""Where Python writes floats with an exponent."""

_cache = DfaCache(max_edges=300_000, refusals=(TooComplex,))

_WHOLE = Form(most=0)
_POINTED = Form(least=1)
_ANY = Form()


def integer_texts(
    minimum: Fraction | None = None,
    maximum: Fraction | None = None,
    exclusive_minimum: bool = False,
    exclusive_maximum: bool = False,
    multiple_of: Fraction | None = None,
    *,
    allow_decimal_zero: bool = True,
) -> Dfa:
    """Texts of integers within the bounds; a flag excludes its bound itself.

    With `allow_decimal_zero` 1.0 is an integer too, as in every draft since 6. Raises TooComplex.
    """
    given = (minimum, maximum, exclusive_minimum, exclusive_maximum)
    form = Form(most=3, zeros=EXACT_DIGITS) if allow_decimal_zero else _WHOLE
    return _cache.get(
        (*given, multiple_of, form), lambda: _integers(_Bounds(*given), multiple_of, form)
    )


def _integers(bounds: _Bounds, multiple_of: Fraction | None, form: Form) -> Dfa:
    if multiple_of is not None and multiple_of != 1:
        return _integer_multiples(multiple_of, bounds.whole, form)
    texts = texts_between(bounds.whole, form)
    if form == _WHOLE or bounds.are_two:
        return texts
    return dfa.union(texts, scientific_texts(bounds.floats, _WHOLE_FLOAT, _LARGE))


def _integer_multiples(step: Fraction, span: Span, form: Form) -> Dfa:
    if step.denominator == 1 or divides_exactly(step):
        return whole_multiples(step.numerator, span, form)
    return dfa.intersect(decimal_multiples(step, span), texts_between(span, form))


def number_texts(
    minimum: Fraction | None = None,
    maximum: Fraction | None = None,
    exclusive_minimum: bool = False,
    exclusive_maximum: bool = False,
    multiple_of: Fraction | None = None,
) -> Dfa:
    """Texts of numbers within the bounds; a flag excludes its bound itself. Raises TooComplex."""
    given = (minimum, maximum, exclusive_minimum, exclusive_maximum)
    if multiple_of is not None and multiple_of.denominator == 1:
        return integer_texts(*given, multiple_of)
    return _cache.get((*given, multiple_of), lambda: _numbers(_Bounds(*given), multiple_of))


def _numbers(bounds: _Bounds, multiple_of: Fraction | None) -> Dfa:
    if multiple_of is not None:
        return decimal_multiples(multiple_of, bounds.both)
    if bounds.floats == Span():
        return _all_numbers()
    scientific = scientific_texts(bounds.floats, _MANTISSA_DIGITS, _SMALL, _LARGE)
    if bounds.whole_parts_agree:
        return dfa.union(texts_between(bounds.floats, _ANY), scientific)
    return dfa.union(
        texts_between(bounds.whole, _WHOLE), texts_between(bounds.floats, _POINTED), scientific
    )


@lru_cache(maxsize=1)
def _all_numbers() -> Dfa:
    """Unbounded, also with exponents after mantissas of several digits."""
    everything = Span()
    long_mantissas = texts_between(everything, Form(digits=_WHOLE_FLOAT))
    reach = MAX_EXPONENT - _WHOLE_FLOAT
    return dfa.union(
        texts_between(everything, _ANY),
        dfa.concat(long_mantissas, exponents(-reach, reach)),
        scientific_texts(everything, _MANTISSA_DIGITS, (-MAX_EXPONENT, MAX_EXPONENT)),
    )


class _Bounds:
    """Bounds as a validator sees them, which may have read them as floats."""

    def __init__(
        self, minimum: Fraction | None, maximum: Fraction | None, above: bool, below: bool
    ) -> None:
        low = None if minimum is None else _readings(minimum)
        high = None if maximum is None else [-bound for bound in _readings(maximum)]
        self.whole = Span(_least_whole(low, above), _negated(_least_whole(high, below)))
        self.floats = Span(_least_float(low, above), _negated(_least_float(high, below)))

    @property
    def both(self) -> Span:
        """What is inside for integers and floats alike, as far as decimals tell them apart."""
        if self.whole_parts_agree:
            return self.floats
        lows = [low for low in (self.whole.low, self.floats.low) if low is not None]
        highs = [high for high in (self.whole.high, self.floats.high) if high is not None]
        return Span(max(lows, default=None), min(highs, default=None))

    @property
    def whole_parts_agree(self) -> bool:
        """Whether an integer is inside exactly if its float is."""
        low, high = self.floats.low, self.floats.high
        return (None if low is None else math.ceil(low)) == self.whole.low and (
            None if high is None else math.floor(high)
        ) == self.whole.high

    @property
    def are_two(self) -> bool:
        """Whether there is a bound on both sides."""
        return self.whole.low is not None and self.whole.high is not None


def _negated(bound: Fraction | None) -> Fraction | None:
    return None if bound is None else -bound


def _readings(bound: Fraction) -> list[Fraction]:
    """The bound as it is written, and as a float."""
    try:
        return [bound, Fraction(float(bound))]
    except OverflowError:
        return [bound]


def _least_whole(bounds: list[Fraction] | None, is_excluded: bool) -> Fraction | None:
    if bounds is None:
        return None
    return Fraction(max(math.floor(b) + 1 if is_excluded else math.ceil(b) for b in bounds))


def _least_float(bounds: list[Fraction] | None, is_excluded: bool) -> Fraction | None:
    """The decimal spelling of the least float inside, or None if there is no bound.

    Whatever lies above that decimal rounds to that float or to a greater one.
    """
    if bounds is None:
        return None
    bound = max(bounds[-1], bounds[0]) if bounds[0].denominator == 1 else bounds[-1]
    if abs(bound) > Fraction(10) ** (MAX_EXPONENT + 1):
        return bound  # no text that is accepted gets there
    least = float(bound)
    while Fraction(least) < bound or (is_excluded and Fraction(least) == bound):
        least = math.nextafter(least, math.inf)
    spelled = Fraction(repr(least))
    smallest = Fraction(1, 10**MAX_FRACTION)
    return smallest if 0 < spelled < smallest and bound == 0 else spelled


def canonical_number(text: str) -> str:
    """The one spelling of a JSON number: 1.0 and 1e0 are 1, -0 is 0, other floats as Python's."""
    value = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"not a JSON number: {text!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"not a finite number: {text!r}")
    return str(int(value)) if value == int(value) else repr(value)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"not a JSON number: {name}")


@lru_cache(maxsize=1)
def canonical_texts() -> Dfa:
    """Texts no two of which mean one number: no -0, no needless zeros, no exponents.

    Numbers with a point have at most 15 digits, so that floats tell them apart.
    """
    whole = dfa.difference(texts_between(Span(), _WHOLE), dfa.literal("-0"))
    return dfa.union(whole, _fractions(is_canonical=True))


def fractional(texts: Dfa) -> Dfa:
    """Those of number texts that are no integers, to floats too."""
    return dfa.intersect(texts, _fractions(is_canonical=False))


@lru_cache(maxsize=2)
def _fractions(*, is_canonical: bool) -> Dfa:
    """Texts with a point, at most 15 digits and a fraction that is not zero."""
    ending = "[1-9]" if is_canonical else "[1-9]0*"
    short = compile_pattern(rf"-?[0-9.]{{3,{EXACT_DIGITS + 1}}}", anchored=True)
    pointed = compile_pattern(rf"-?(0|[1-9][0-9]*)\.[0-9]*{ending}", anchored=True)
    return dfa.intersect(short, pointed)


def number_literal(value: int | float, *, allow_decimal_zero: bool = True) -> Dfa:
    """The usual texts of one number, all equal to it as JSON: 1, 1.0, 1e0 and so on.

    Without `allow_decimal_zero` an integer has no point and no exponent, as draft 4 wants it.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if value == int(value) and not allow_decimal_zero:
        return dfa.literals(_equal_texts(value, {str(int(value)), "-0"}))
    return dfa.literals(_equal_texts(value, _spellings(value)))


def _equal_texts(value: int | float, texts: Iterable[str]) -> Iterable[str]:
    return (text for text in texts if json.loads(text) == value)


def _spellings(value: int | float) -> set[str]:
    """Candidates: plain and with exponent, with needless zeros and signs."""
    exact = Decimal(int(value)) if value == int(value) else Decimal(repr(value))
    if isinstance(value, float) and exact.adjusted() >= _WHOLE_FLOAT:
        exact = Decimal(repr(value))
    texts = {str(value)} if isinstance(value, int) else set()
    if -_WHOLE_FLOAT * 2 <= exact.adjusted() <= MAX_DIGITS:
        plain = f"{exact:f}"
        texts |= {plain, plain.rstrip("0").rstrip(".") if "." in plain else plain}
        texts |= {text + zeros for text in texts for zeros in _zeros("." in text)}
    texts |= set(_scientific_spellings(exact))
    return texts | {f"-{text}" for text in texts if value == 0}


def _zeros(is_pointed: bool) -> tuple[str, ...]:
    return ("0", "00") if is_pointed else (".0", ".00")


def _scientific_spellings(value: Decimal) -> Iterable[str]:
    sign, digits, _ = value.as_tuple()
    figures = "".join(map(str, digits)).rstrip("0") or "0"
    mantissa = ("-" if sign else "") + figures[0] + (f".{figures[1:]}" if figures[1:] else "")
    power = value.adjusted() if value else 0
    for spelled in {mantissa, mantissa if figures[1:] else f"{mantissa}.0"}:
        for letter in "eE":
            for plus in ("", "+") if power >= 0 else ("-",):
                for width in (1, 2):
                    yield f"{spelled}{letter}{plus}{abs(power):0{width}d}"


def excluding(texts: Dfa, values: Iterable[int | float]) -> Dfa:
    """Number texts without any that may read as one of the values; exponents are left out too."""
    values = list(values)
    if not values:
        return texts
    plain = dfa.intersect(texts, _pointed_or_whole())
    return dfa.difference(plain, dfa.union(*map(_near, values)))


@lru_cache(maxsize=1)
def _pointed_or_whole() -> Dfa:
    return texts_between(Span(), _ANY)


def _near(value: int | float) -> Dfa:
    """All texts without exponent that may read as the value."""
    whole = {str(int(value)), "-0"} if value == int(value) else set()
    same = dfa.literals(_equal_texts(value, whole))
    try:
        nearest = float(value)
    except OverflowError:
        return same
    low, high = math.nextafter(nearest, -math.inf), math.nextafter(nearest, math.inf)
    if math.isinf(low) or math.isinf(high):
        return same
    places = 10**MAX_FRACTION
    around = Span(
        Fraction(math.floor(Fraction(repr(low)) * places), places),
        Fraction(math.ceil(Fraction(repr(high)) * places), places),
    )
    return dfa.union(same, texts_between(around, _POINTED))
