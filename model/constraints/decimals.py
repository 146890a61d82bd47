"""Number texts between exact bounds, as automata over their digits.

Nothing here knows of floats: a bound is a Fraction and a text means the decimal it spells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from model.constraints import dfa
from model.constraints.dfa import Dfa

MAX_DIGITS = 40
"""Digits a number may have before its decimal point."""
MAX_FRACTION = 24
"""Digits a number may have after its decimal point."""
MAX_EXPONENT = 307
"""The largest power of ten: with one digit before the point no text reaches infinity."""

_ZERO, _NINE, _DOT, _MINUS = ord("0"), ord("9"), ord("."), ord("-")

# (phase, digits read in it, how they compare to the lower bound's, to the upper bound's)
_State = tuple[str, int, int, int]
_START: _State = ("start", 0, 0, 0)


@dataclass(frozen=True)
class Span:
    """A closed interval of decimals; None is no bound."""

    low: Fraction | None = None
    high: Fraction | None = None

    @property
    def positive(self) -> Span | None:
        """The part from zero on."""
        if self.high is not None and self.high < 0:
            return None
        return Span(max(self.low or Fraction(0), Fraction(0)), self.high)

    @property
    def negative(self) -> Span | None:
        """The magnitudes of the part up to zero."""
        return Span(_negated(self.high), _negated(self.low)).positive

    @property
    def is_empty(self) -> bool:
        return self.low is not None and self.high is not None and self.low > self.high


def _negated(bound: Fraction | None) -> Fraction | None:
    return None if bound is None else -bound


@dataclass(frozen=True)
class Form:
    """How numbers are written: the digits before the point, and the least and most after it.

    With `zeros` only zeros follow a point, and a point follows at most `zeros` digits.
    """

    digits: int = MAX_DIGITS
    least: int = 0
    most: int = MAX_FRACTION
    zeros: int | None = None


def texts_between(span: Span, form: Form) -> Dfa:
    """The texts in `form` of the numbers in `span`, without exponents."""
    if span.is_empty:
        return dfa.EMPTY
    signs = {"": span.positive, "-": span.negative}
    parts = {sign: _Magnitudes(part, form) for sign, part in signs.items() if part is not None}

    def moves(key: tuple[str, _State]) -> Iterator[tuple[int, int, tuple[str, _State]]]:
        sign, state = key
        if state == _START and sign == "" and "-" in parts:
            yield _MINUS, _MINUS, ("-", _START)
        if sign in parts:
            for lo, hi, target in parts[sign].moves(state):
                yield lo, hi, (sign, target)

    return dfa.explore(
        ("", _START), moves, lambda key: key[0] in parts and parts[key[0]].accepts(key[1])
    )


class _Magnitudes:
    """Texts without a sign of the numbers in a span that starts at zero or above."""

    def __init__(self, span: Span, form: Form) -> None:
        scale = 10**form.most
        low = math.ceil((span.low or Fraction(0)) * scale)
        self._form = form
        self._low, self._low_fraction = self._digits(low, scale)
        self._high: str | None = None
        self._high_fraction = ""
        if span.high is not None:
            self._high, self._high_fraction = self._digits(math.floor(span.high * scale), scale)

    def _digits(self, scaled: int, scale: int) -> tuple[str, str]:
        whole, part = divmod(scaled, scale)
        return str(whole), f"{part:0{self._form.most}d}".rstrip("0") if part else ""

    def moves(self, state: _State) -> Iterator[tuple[int, int, _State]]:
        phase, read, low, high = state
        if phase == "start":
            yield from self._whole_digits(0, 0, 0, "zero", range(1))
            yield from self._whole_digits(0, 0, 0, "whole", range(1, 10))
        elif phase == "fraction":
            if read < self._form.most:
                yield from self._fraction_digits(read, low, high)
        else:
            yield from self._point(read, low, high)
            if phase == "whole" and read < self._form.digits:
                yield from self._whole_digits(read, low, high, "whole", range(10))

    def accepts(self, state: _State) -> bool:
        phase, read, low, high = state
        if phase == "fraction":
            return read >= max(self._form.least, 1) and low > 0
        if phase == "start" or self._form.least:
            return False
        low, high = self._whole_order(read, low, high)
        return self._is_above(0, low) > 0 and high <= 0

    def _point(self, read: int, low: int, high: int) -> Iterator[tuple[int, int, _State]]:
        zeros = self._form.zeros
        if self._form.most and (zeros is None or read <= zeros):
            low, high = self._whole_order(read, low, high)
            if low >= 0 >= high:
                yield _DOT, _DOT, ("fraction", 0, self._is_above(0, low), high)

    def _whole_digits(
        self, read: int, low: int, high: int, phase: str, digits: range
    ) -> Iterator[tuple[int, int, _State]]:
        for digit in digits:
            below = _order(digit, self._low, read) if low == 0 else low
            above = _order(digit, self._high, read) if high == 0 and self._high else high
            if read >= len(self._low):
                below = 1
            if self._high is None:
                above = -1
            elif read >= len(self._high) or (read + 1 == len(self._high) and above > 0):
                continue
            yield _ZERO + digit, _ZERO + digit, (phase, read + 1, below, above)

    def _whole_order(self, read: int, low: int, high: int) -> tuple[int, int]:
        """How the whole part compares to the bounds', now that it is complete."""
        if read != len(self._low):
            low = 1 if read > len(self._low) else -1
        if self._high is None or read < len(self._high):
            high = -1
        return low, high

    def _fraction_digits(self, read: int, low: int, high: int) -> Iterator[tuple[int, int, _State]]:
        for digit in range(1 if self._form.zeros is not None else 10):
            below = _order(digit, self._low_fraction, read) if low == 0 else low
            above = _order(digit, self._high_fraction, read) if high == 0 else high
            if below >= 0 >= above:
                reached = self._is_above(read + 1, below)
                yield _ZERO + digit, _ZERO + digit, ("fraction", read + 1, reached, above)

    def _is_above(self, read: int, low: int) -> int:
        """1 as soon as the lower bound is reached whatever follows."""
        return 1 if low == 0 and read >= len(self._low_fraction) else low


def _order(digit: int, digits: str, at: int) -> int:
    other = int(digits[at]) if at < len(digits) else 0
    return (digit > other) - (digit < other)


@lru_cache(maxsize=64)
def exponents(low: int, high: int) -> Dfa:
    """`e` and an exponent in the range, with or without plus and one leading zero."""
    form = Form(digits=len(str(MAX_EXPONENT)), most=0)
    plain = texts_between(Span(Fraction(max(low, 0)), Fraction(high)), form)
    minus = texts_between(Span(Fraction(max(-high, 0)), Fraction(-low)), form)
    zero = dfa.literals(("", "0"))
    return dfa.union(
        dfa.concat(
            dfa.literals(("e", "E", "e+", "E+")), zero, dfa.difference(plain, dfa.literal("-0"))
        ),
        dfa.concat(dfa.literals(("e-", "E-")), zero, dfa.difference(minus, dfa.literal("-0"))),
    )


def scientific_texts(span: Span, fraction: int, *windows: tuple[int, int]) -> Dfa:
    """Texts such as 1.5e-07 of the numbers in `span`, with exponents inside one of `windows`.

    One digit, not zero, stands before the point and at most `fraction` digits after it.
    """
    if span.is_empty:
        return dfa.EMPTY
    signs = {"": span.positive, "-": span.negative}
    pieces = [
        (sign, fraction, *piece)
        for sign, part in signs.items()
        for first, last in windows
        if part is not None
        for piece in _pieces(part, first, last)
    ]
    return _scientific(tuple(pieces))


_Piece = tuple[Fraction, Fraction | None, int, int]


def _pieces(span: Span, first: int, last: int) -> Iterator[_Piece]:
    """Splits a span at powers of ten: (least mantissa, greatest, first exponent, last)."""
    one = Fraction(1)
    low, low_power = _normal(span.low) if span.low else (one, first)
    high, high_power = _normal(span.high) if span.high is not None else (None, last)
    if high == 0:
        return
    if low_power < first:
        low, low_power = one, first
    if high_power > last:
        high, high_power = None, last
    if low_power == high_power:
        yield low, high, low_power, high_power
        return
    if low > one and low_power < high_power:
        yield low, None, low_power, low_power
        low_power += 1
    if high is not None and low_power <= high_power:
        yield one, high, high_power, high_power
        high_power -= 1
    if low_power <= high_power:
        yield one, None, low_power, high_power


@lru_cache(maxsize=64)
def _scientific(pieces: tuple[tuple[str, int, *_Piece], ...]) -> Dfa:
    parts = []
    for sign, fraction, low, high, first, last in pieces:
        mantissas = _Magnitudes(Span(low, high), Form(digits=1, most=fraction))
        texts = dfa.explore(_START, mantissas.moves, mantissas.accepts)
        parts.append(dfa.concat(dfa.literal(sign), texts, exponents(first, last)))
    return dfa.union(*parts)


def _normal(value: Fraction) -> tuple[Fraction, int]:
    """A number as a mantissa from 1 up to 10 and a power of ten; zero has mantissa 0."""
    if value == 0:
        return value, 0
    power = len(str(value.numerator)) - len(str(value.denominator))
    if value < Fraction(10) ** power:
        power -= 1
    return value / Fraction(10) ** power, power
