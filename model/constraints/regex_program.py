"""A parsed pattern as a program: the parts of a backtracking matcher, without the matching.

Characters are consumed by Char, ways part at Split, After looks one character back, Look matches
ahead without consuming; Match and End are the two ways to accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from model.constraints import charsets
from model.constraints.charsets import Charset
from model.constraints.tables import TooComplex

sre: Any = import_module("re._constants")
"""Python's own names for a parsed pattern's parts; typeshed does not know the module."""

MAX_PROGRAM = 60_000
"""Items a pattern may unroll to: a counted repeat copies what it repeats."""


class UnsupportedPattern(ValueError):
    """A pattern that is no regular expression, or that no finite automaton can enforce."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason, position)
        self.reason, self.position = reason, position

    def __str__(self) -> str:
        return self.reason + (f" at position {self.position}" if self.position is not None else "")


@dataclass(frozen=True)
class Mode:
    """How the items at a place are read: Python's flags, and whether too much or too little."""

    flags: int
    wide: bool

    def opposite(self) -> Mode:
        return Mode(self.flags, not self.wide)

    def with_flags(self, add: int, remove: int) -> Mode:
        return Mode((self.flags | add) & ~remove, self.wide)

    def has(self, flag: int) -> bool:
        return bool(self.flags & flag)


@dataclass(frozen=True)
class Char:
    """Consumes one character of the set."""

    charset: Charset
    next: int


@dataclass
class Split:
    """Goes on in any of several places."""

    targets: list[int]


@dataclass(frozen=True)
class After:
    """Goes on if the character before is in the set, or at the start of the text if `at_start`."""

    charset: Charset
    at_start: bool
    next: int


@dataclass(frozen=True)
class Look:
    """Goes on if what follows matches from `inside`, or does not if `negated`."""

    inside: int
    negated: bool
    next: int


@dataclass(frozen=True)
class Match:
    """The pattern was found; whatever follows is accepted."""


@dataclass(frozen=True)
class End:
    """Accepts the end of the text."""


Instruction = Char | Split | After | Look | Match | End


class Program:
    """Instructions by number. Each method adds what comes before `then` and returns its start."""

    def __init__(self) -> None:
        self.code: list[Instruction] = [Match(), End()]
        self.match, self.end = 0, 1
        self._work = 0
        self._sets: dict[tuple[Any, int, Mode], tuple[Charset, Any]] = {}

    def add(self, instruction: Instruction) -> int:
        self.code.append(instruction)
        return len(self.code) - 1

    def search(self, entry: int) -> int:
        """Tries `entry` at every position."""
        either = Split([entry])
        start = self.add(either)
        either.targets.append(self.add(Char(charsets.ALL, start)))
        return start

    def sequence(self, items: Any, then: int, mode: Mode) -> int:
        for operator, argument in reversed(list(items)):
            self._spend()
            emit = _EMITTERS.get(operator)
            if emit is None:
                raise UnsupportedPattern(_REFUSED.get(operator, f"{operator} in a pattern"))
            then = emit(self, argument, then, mode)
        return then

    def _spend(self) -> None:
        self._work += 1
        if self._work > MAX_PROGRAM:
            raise TooComplex(f"the pattern unrolls to more than {MAX_PROGRAM} items")

    def characters(self, item: tuple[Any, Any], then: int, mode: Mode) -> int:
        key = (item[0], id(item[1]), mode)  # copies of a repeated item share their argument
        if key not in self._sets:
            self._sets[key] = (_charset(item, mode), item)
        return self.add(Char(self._sets[key][0], then))

    def branch(self, argument: tuple[None, list[Any]], then: int, mode: Mode) -> int:
        return self.add(Split([self.sequence(items, then, mode) for items in argument[1]]))

    def group(self, argument: tuple[int | None, int, int, Any], then: int, mode: Mode) -> int:
        _, add, remove, items = argument
        return self.sequence(items, then, mode.with_flags(add, remove))

    def repeat(self, argument: tuple[int, Any, Any], then: int, mode: Mode) -> int:
        least, most, items = argument
        entry = then
        if most is sre.MAXREPEAT:
            again = Split([then])
            entry = self.add(again)
            again.targets.append(self.sequence(items, entry, mode))
        else:
            for _ in range(most - least):
                entry = self.add(Split([self._copy(items, entry, mode), then]))
        for _ in range(least):
            entry = self._copy(items, entry, mode)
        return entry

    def _copy(self, items: Any, then: int, mode: Mode) -> int:
        self._spend()  # copies of nothing cost too
        return self.sequence(items, then, mode)

    def look(self, argument: tuple[int, Any], then: int, mode: Mode, *, negated: bool) -> int:
        direction, items = argument
        inner = mode.opposite() if negated else mode
        if direction > 0:
            return self.add(Look(self.sequence(items, self.match, inner), negated, then))
        charset = _charset(_only_item(items), inner)
        return self.add(After(charsets.complement(charset) if negated else charset, negated, then))

    def anchor(self, where: Any, then: int, mode: Mode) -> int:
        if where is sre.AT_BEGINNING_STRING:
            return self.add(After((), True, then))
        if where is sre.AT_BEGINNING:
            before = charsets.NEWLINE if mode.has(sre.SRE_FLAG_MULTILINE) else ()
            return self.add(After(before, True, then))
        if where is sre.AT_END_STRING:
            return self.add(Look(self.end, False, then))
        if where is sre.AT_END:
            return self._end_of_line(then, mode)
        return self._boundary(then, mode, inside=where is sre.AT_NON_BOUNDARY)

    def _end_of_line(self, then: int, mode: Mode) -> int:
        """`$`: the end; to Python also before a last newline, in MULTILINE before any."""
        ends = [self.end]
        if mode.has(sre.SRE_FLAG_MULTILINE):
            ends.append(self.add(Char(charsets.NEWLINE, self.match)))
        elif mode.wide:
            ends.append(self.add(Char(charsets.NEWLINE, self.end)))
        return self.add(Look(self.add(Split(ends)), False, then))

    def _boundary(self, then: int, mode: Mode, *, inside: bool) -> int:
        """`\\b`, or `\\B` with `inside`. Letters beyond ASCII may count as both or as neither."""
        word = _category("w", False, mode)
        other = _category("w", True, mode)
        to_word = self.add(Look(self.add(Char(word, self.match)), False, then))
        ends = self.add(Split([self.add(Char(other, self.match)), self.end]))
        to_other = self.add(Look(ends, False, then))
        after_word = self.add(After(word, False, to_word if inside else to_other))
        after_other = self.add(After(other, False, to_other if inside else to_word))
        at_start = to_word
        if inside:  # Python finds no \B in the empty text, ECMA does
            not_end = self.add(Look(self.end, True, to_other))
            at_start = to_other if mode.wide else not_end
        return self.add(Split([after_word, after_other, self.add(After((), True, at_start))]))


def _only_item(items: Any) -> tuple[Any, Any]:
    item: tuple[Any, Any]
    if len(items) == 1:
        (item,) = items
        if item[0] in _CHARACTERS:
            return item
    raise UnsupportedPattern("a lookbehind for more than one character cannot be enforced")


def _charset(item: tuple[Any, Any], mode: Mode) -> Charset:
    """The characters of one parsed item that stands for a single character."""
    operator, argument = item
    if operator is sre.ANY:
        if mode.has(sre.SRE_FLAG_DOTALL):
            return charsets.ALL
        return charsets.complement(charsets.NEWLINE if mode.wide else charsets.LINE_ENDS)
    if operator is sre.LITERAL:
        return _members([item], mode)
    if operator is sre.NOT_LITERAL:
        return charsets.complement(_members([(sre.LITERAL, argument)], mode.opposite()))
    if argument[0][0] is sre.NEGATE:
        return charsets.complement(_members(argument[1:], mode.opposite()))
    return _members(argument, mode)


def _members(items: Iterable[tuple[Any, Any]], mode: Mode) -> Charset:
    listed: list[tuple[int, int]] = []
    categories: list[tuple[int, int]] = []
    for operator, argument in items:
        if operator is sre.LITERAL:
            listed.append((argument, argument))
        elif operator is sre.RANGE:
            listed.append(argument)
        else:
            letter, negated = _CATEGORIES[argument]
            categories += _category(letter, negated, mode)
    if mode.has(sre.SRE_FLAG_IGNORECASE):
        if mode.has(sre.SRE_FLAG_ASCII):
            raise UnsupportedPattern("the flags a and i together cannot be enforced")
        listed = list(charsets.any_case(charsets.union(listed), wide=mode.wide))
    return charsets.union(listed + categories)


def _category(letter: str, negated: bool, mode: Mode) -> Charset:
    ascii_only = mode.has(sre.SRE_FLAG_ASCII)
    return charsets.class_of(letter, negated=negated, wide=mode.wide, ascii_only=ascii_only)


_CATEGORIES = {
    sre.CATEGORY_DIGIT: ("d", False),
    sre.CATEGORY_NOT_DIGIT: ("d", True),
    sre.CATEGORY_SPACE: ("s", False),
    sre.CATEGORY_NOT_SPACE: ("s", True),
    sre.CATEGORY_WORD: ("w", False),
    sre.CATEGORY_NOT_WORD: ("w", True),
}
_CHARACTERS = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)

_Emitter = Callable[[Program, Any, int, Mode], int]


def _character_emitter(operator: Any) -> _Emitter:
    return lambda program, argument, then, mode: program.characters(
        (operator, argument), then, mode
    )


_EMITTERS: dict[Any, _Emitter] = {
    **{operator: _character_emitter(operator) for operator in _CHARACTERS},
    sre.BRANCH: Program.branch,
    sre.SUBPATTERN: Program.group,
    sre.MAX_REPEAT: Program.repeat,
    sre.MIN_REPEAT: Program.repeat,
    sre.AT: Program.anchor,
    sre.ASSERT: lambda p, argument, then, mode: p.look(argument, then, mode, negated=False),
    sre.ASSERT_NOT: lambda p, argument, then, mode: p.look(argument, then, mode, negated=True),
    sre.FAILURE: lambda p, argument, then, mode: p.add(Split([])),
}
_REFUSED = {
    sre.GROUPREF: "a backreference cannot be enforced",
    sre.GROUPREF_EXISTS: "a conditional group cannot be enforced",
    sre.ATOMIC_GROUP: "an atomic group cannot be enforced; write a plain group",
    sre.POSSESSIVE_REPEAT: "a possessive quantifier cannot be enforced; write a plain one",
}
