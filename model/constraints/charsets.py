"""Sets of characters as sorted disjoint code point intervals, and the character classes of regexes.

A class such as `\\w` means one set to Python and another to ECMA 262. `narrow` is what both agree
on, `wide` what either allows; the two are the same set for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

Charset = tuple[tuple[int, int], ...]

ALL: Charset = ((0x0, 0xD7FF), (0xE000, 0x10FFFF))
"""Every character but the surrogates, which are no characters of a text."""

NEWLINE: Charset = ((0x0A, 0x0A),)
LINE_ENDS: Charset = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
"""What ECMA's `.` leaves out; Python's leaves out only the newline."""

ASCII_DIGITS: Charset = ((0x30, 0x39),)
ASCII_WORD: Charset = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
ASCII_SPACE: Charset = ((0x09, 0x0D), (0x20, 0x20))
_ECMA_SPACE: Charset = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_PYTHON_SPACE: Charset = (
    (0x09, 0x0D), (0x1C, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
    (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
)  # fmt: skip
_ASCII = {"d": ASCII_DIGITS, "s": ASCII_SPACE, "w": ASCII_WORD}


def union(intervals: Iterable[tuple[int, int]]) -> Charset:
    """The set of all the intervals, in any order and overlapping as they may; no surrogates."""
    joined: list[tuple[int, int]] = []
    for lo, hi in sorted(intervals):
        if joined and lo <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], hi))
        else:
            joined.append((lo, hi))
    return intersect(tuple(joined), ALL)


def intersect(left: Charset, right: Charset) -> Charset:
    """The characters in both."""
    both: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        lo, hi = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if lo <= hi:
            both.append((lo, hi))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(both)


def complement(charset: Charset) -> Charset:
    """All other characters."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for lo, hi in charset:
        if lo > start:
            gaps.append((start, lo - 1))
        start = hi + 1
    if start <= 0x10FFFF:
        gaps.append((start, 0x10FFFF))
    return intersect(tuple(gaps), ALL)


_COMMON_SPACE = intersect(_PYTHON_SPACE, _ECMA_SPACE)


@lru_cache(maxsize=16)
def class_of(letter: str, *, negated: bool, wide: bool, ascii_only: bool) -> Charset:
    """The set of `\\d`, `\\s` or `\\w` (`letter`), or with `negated` of `\\D`, `\\S` or `\\W`."""
    if negated:
        return complement(class_of(letter, negated=False, wide=not wide, ascii_only=ascii_only))
    if ascii_only:
        return _ASCII[letter]
    if letter == "s":
        return union(_PYTHON_SPACE + _ECMA_SPACE) if wide else _COMMON_SPACE
    return _matching("\\" + letter, 0) if wide else _ASCII[letter]  # ECMA's are ASCII's


@lru_cache(maxsize=256)
def any_case(charset: Charset, *, wide: bool) -> Charset:
    """The set as Python's IGNORECASE sees it: exactly if `wide`, else with ASCII letters only."""
    if wide:
        ranges = "".join(f"\\U{lo:08x}-\\U{hi:08x}" for lo, hi in charset)
        return _matching(f"[{ranges}]", re.IGNORECASE) if ranges else ()
    upper = intersect(charset, ((0x41, 0x5A),))
    lower = intersect(charset, ((0x61, 0x7A),))
    swapped = [(lo + 32, hi + 32) for lo, hi in upper] + [(lo - 32, hi - 32) for lo, hi in lower]
    return union([*charset, *swapped])


def _matching(pattern: str, flags: int) -> Charset:
    """The characters that Python's own `re` finds, so that both always agree."""
    spans = (match.span() for match in re.finditer(f"{pattern}+", _every_character(), flags))
    return union((start, end - 1) for start, end in spans)


@lru_cache(maxsize=1)
def _every_character() -> str:
    """A string whose n-th code point is n."""
    code_points = np.arange(0x110000, dtype="<u4").tobytes()
    return code_points.decode("utf-32-le", "surrogatepass")
