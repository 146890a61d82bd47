"""Runs a pattern's program on all texts at once, which gives its automaton.

At every position of a text stands a formula over the instructions that consume: alternatives are
"or", lookaheads and anchors are "and" and "not". A formula's derivative by a character is again a
formula, so formulas are the automaton's states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from model.constraints import charsets, dfa, tables
from model.constraints.charsets import Charset
from model.constraints.dfa import Dfa
from model.constraints.regex_program import (
    After,
    Char,
    End,
    Look,
    Match,
    Program,
    Split,
)
from model.constraints.tables import Budget, Edge, Row

# Formulas: "or" over clauses, "and" over a clause's literals, a literal being an instruction that
# consumes (Char, End), twice its number, plus one if it is negated.

Clause = frozenset[int]
Formula = frozenset[Clause]

TRUE: Formula = frozenset({frozenset()})
FALSE: Formula = frozenset()
_AT_END = 2  # the literal of Program.end
_START = -1  # the context of the first character


class _Formulas:
    """And, or, not of formulas, paid for from a budget.

    `is_plain` says that no clause will ever have two literals.
    """

    def __init__(self, budget: Budget, *, is_plain: bool) -> None:
        self._budget, self._is_plain = budget, is_plain

    def either(self, formulas: Iterable[Formula]) -> Formula:
        return self._absorb(frozenset[Clause]().union(*formulas))

    def _absorb(self, formula: Formula) -> Formula:
        """Drops every clause that another one makes needless."""
        self._budget.spend(len(formula))
        if frozenset() in formula:
            return TRUE
        if self._is_plain or all(len(clause) == 1 for clause in formula):
            return formula
        self._budget.spend(len(formula) ** 2 // 4)
        return frozenset(c for c in formula if not any(other < c for other in formula))

    def both(self, left: Formula, right: Formula) -> Formula:
        if left == TRUE:
            return right
        if right == TRUE:
            return left
        for clause in left:
            self._budget.spend((len(clause) + 1) * len(right))
        joined = (_join(a, b) for a in left for b in right)
        return self._absorb(frozenset(clause for clause in joined if clause is not None))

    def negation(self, formula: Formula) -> Formula:
        result = TRUE
        for clause in formula:
            negated = (frozenset({literal ^ 1}) for literal in clause)
            result = self.both(result, frozenset(negated))
        return result


def _join(left: Clause, right: Clause) -> Clause | None:
    """Both clauses together, or None if they contradict each other."""
    clause = left | right
    if any(literal ^ 1 in clause for literal in clause):
        return None
    if _AT_END in clause:  # at the end every negated character holds and every plain one fails
        plain = any(not literal & 1 for literal in clause if literal != _AT_END)
        return None if plain else frozenset({_AT_END})
    if _AT_END ^ 1 in clause and any(not literal & 1 for literal in clause):
        return clause - {_AT_END ^ 1}
    return clause


@dataclass
class _Alphabet:
    """Characters that no set of the program tells apart share a class."""

    segments: list[tuple[int, int, int]]  # (lo, hi, class), sorted
    classes_of: dict[Charset, frozenset[int]]
    size: int

    @classmethod
    def of(cls, sets: Iterable[Charset]) -> _Alphabet:
        distinct = list(dict.fromkeys([charsets.ALL, *sets]))
        rows = [[(lo, hi, 1) for lo, hi in charset] for charset in distinct]
        classes: dict[tuple[int | None, ...], int] = {}
        segments = [
            (lo, hi, classes.setdefault(inside, len(classes)))
            for lo, hi, inside in tables.overlay(rows)
        ]
        classes_of = {
            charset: frozenset(number for inside, number in classes.items() if inside[index])
            for index, charset in enumerate(distinct)
        }
        return cls(segments, classes_of, len(classes))

    def spell(self, row: Row) -> Iterator[Edge]:
        """A row over classes as a row over code points."""
        target = {letter: goal for lo, hi, goal in row for letter in range(lo, hi + 1)}
        for lo, hi, letter in self.segments:
            if letter in target:
                yield lo, hi, target[letter]


class Matcher:
    """Runs a program on all texts at once."""

    def __init__(self, program: Program, start: int) -> None:
        self._code, self._start = program.code, start
        self._chars = {at: i for at, i in enumerate(program.code) if isinstance(i, Char)}
        self._alphabet = _Alphabet.of(i.charset for i in self._code if isinstance(i, Char | After))
        self._everything = frozenset(range(self._alphabet.size))
        self._known, self._contexts = self._knowledge()
        self._budget = Budget()
        is_plain = not any(isinstance(instruction, Look) for instruction in self._code)
        self._algebra = _Formulas(self._budget, is_plain=is_plain)
        self._formulas: dict[tuple[int, int], Formula] = {}
        self._moves: dict[Clause, dict[int, Formula]] = {}

    def language(self) -> Dfa:
        """The texts that the program accepts."""
        numbers = {self._formula(self._start, _START): 0}
        states = list(numbers)
        table: list[Row] = []
        for state in states:
            row: list[Edge] = []
            for letter, formula in sorted(self._derivatives(state).items()):
                found = numbers.setdefault(formula, len(states))
                if found == len(states):
                    states.append(formula)
                row.append((letter, letter, found))
            self._budget.allow(len(states))
            table.append(tables.coalesce(row))
        accepting = [index for index, state in enumerate(states) if _accepts_end(state)]
        return dfa.build(table, accepting, spell=self._alphabet.spell)

    def _knowledge(self) -> tuple[list[frozenset[Charset]], list[int]]:
        """What an After can know of the character before it, and its number for each class."""
        sets = {instruction.charset for instruction in self._code if isinstance(instruction, After)}
        members = {charset: self._alphabet.classes_of[charset] for charset in sets}
        numbers: dict[frozenset[Charset], int] = {}
        by_class = [
            numbers.setdefault(
                frozenset(charset for charset in sets if letter in members[charset]), len(numbers)
            )
            for letter in range(self._alphabet.size)
        ]
        return list(numbers), by_class

    def _derivatives(self, state: Formula) -> dict[int, Formula]:
        """For each class of characters what must hold of the text after it; false left out."""
        moves = [self._clause_moves(clause) for clause in state]
        self._budget.spend(sum(map(len, moves)) + 1)
        if len(moves) == 1:
            return moves[0]
        reached: dict[int, list[Formula]] = {}
        for move in moves:
            for letter, formula in move.items():
                reached.setdefault(letter, []).append(formula)
        shared: dict[tuple[int, ...], Formula] = {}
        found: dict[int, Formula] = {}
        for letter, formulas in reached.items():
            key = tuple(map(id, formulas))
            known = formulas[0] if len(formulas) == 1 else shared.get(key)
            if known is None:
                known = shared[key] = self._algebra.either(formulas)
            found[letter] = known
        return found

    def _clause_moves(self, clause: Clause) -> dict[int, Formula]:
        known = self._moves.get(clause)
        if known is None:
            known = self._moves[clause] = self._move_clause(clause)
        return known

    def _move_clause(self, clause: Clause) -> dict[int, Formula]:
        """The derivatives of a clause; letters that its literals do not tell apart share one."""
        letters = self._everything
        for literal in clause:
            if not literal & 1:
                letters &= self._letters(literal)
        self._budget.spend(len(clause) + len(letters))
        concerned: dict[int, list[int]] = {letter: [] for letter in letters}
        for literal in clause:
            inside = letters & self._letters(literal)
            self._budget.spend(len(inside))
            for letter in inside:
                concerned[letter].append(literal)
        shared: dict[tuple[int, ...], Formula] = {}
        moves: dict[int, Formula] = {}
        for letter, literals in concerned.items():
            key = (self._contexts[letter], *literals)
            if key not in shared:
                shared[key] = self._move_literals(literals, self._contexts[letter])
            if shared[key]:
                moves[letter] = shared[key]
        return moves

    def _letters(self, literal: int) -> frozenset[int]:
        """The classes of characters that the literal's instruction consumes."""
        char = self._chars.get(literal >> 1)
        return self._alphabet.classes_of[char.charset] if char else frozenset()

    def _move_literals(self, literals: Iterable[int], context: int) -> Formula:
        """What must hold after a character that all these literals' instructions consume."""
        result = TRUE
        for literal in literals:
            after = self._formula(self._chars[literal >> 1].next, context)
            result = self._algebra.both(
                result, self._algebra.negation(after) if literal & 1 else after
            )
        return result

    def _formula(self, root: int, context: int) -> Formula:
        """What must hold of the text from here on for the program to match from `root`."""
        known = self._formulas.get((root, context))
        if known is None:
            known = self._formulas[root, context] = self._closure(root, context)
        return known

    def _closure(self, root: int, context: int) -> Formula:
        """Follows all that consumes nothing, carrying the conditions met on the way.

        A place reached again adds nothing unless its conditions are weaker.
        """
        clauses: set[Clause] = set()
        seen: dict[int, Formula] = {}
        pending = [(root, TRUE)]
        while pending:
            at, condition = pending.pop()
            before = seen.get(at, FALSE)
            seen[at] = condition if not before else self._algebra.either([before, condition])
            if seen[at] == before:
                continue
            self._budget.spend(len(condition) + 1)
            instruction = self._code[at]
            if isinstance(instruction, Char | End):
                clauses |= self._algebra.both(condition, frozenset({frozenset({2 * at})}))
            elif isinstance(instruction, Match):
                clauses |= condition
            elif isinstance(instruction, Split):
                pending += [(target, condition) for target in instruction.targets]
            elif isinstance(instruction, Look):
                holds = self._formula(instruction.inside, context)
                holds = self._algebra.negation(holds) if instruction.negated else holds
                pending.append((instruction.next, self._algebra.both(condition, holds)))
            elif self._follows(instruction, context):
                pending.append((instruction.next, condition))
        return self._algebra.either([frozenset(clauses)])

    def _follows(self, instruction: After, context: int) -> bool:
        if context == _START:
            return instruction.at_start
        return instruction.charset in self._known[context]


def _accepts_end(formula: Formula) -> bool:
    """Whether the formula holds at the end of the text."""
    return any(
        all(literal == _AT_END or (literal & 1 and literal != _AT_END ^ 1) for literal in clause)
        for clause in formula
    )
