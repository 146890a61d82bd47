"""Formline's own schema compiler and automaton.

With extra properties, which rows get only on request: the schema's own language is what is judged.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from benchmarks.peers import Grammar, Matcher, Peer, Refused
from model.constraints.automaton import Automaton, State
from model.constraints.json_parser import JsonParser
from model.constraints.masks import Masks
from model.constraints.schema import compile_schema
from model.constraints.shapes import EVERY_SPELLING, Constraint
from model.constraints.vocabulary import Vocabulary
from model.errors import UnsupportedSchema


def make(vocabulary: Vocabulary, _variant: str) -> Peer:
    return FormlinePeer(vocabulary)


class FormlinePeer(Peer):
    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        self._masks = Masks(vocabulary)

    def compile(self, schema: Any) -> Grammar:
        try:
            constraint = Constraint(compile_schema(json.dumps(schema), extra_properties=True))
        except UnsupportedSchema as error:
            raise Refused(str(error), error.keyword) from error
        automaton = Automaton(constraint, self._masks, self.vocabulary.eos_ids)
        return FormlineGrammar(self.vocabulary, automaton)


class FormlineGrammar(Grammar):
    def __init__(self, vocabulary: Vocabulary, automaton: Automaton) -> None:
        super().__init__(vocabulary)
        self._automaton = automaton

    def start(self) -> Matcher:
        return FormlineMatcher(self._automaton)

    def accepts(self, text: str) -> bool:
        constraint = replace(self._automaton.constraint, style=EVERY_SPELLING)
        return JsonParser.of(constraint).matches(text)


class FormlineMatcher(Matcher):
    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._state: State = automaton.start

    def fill(self, mask: Any) -> None:
        mask[:] = self._automaton.mask(self._state)

    def advance(self, token: int) -> bool:
        after = self._automaton.after(self._state, token)
        if after is None:
            return False
        self._state = after
        return True

    def can_end(self) -> bool:
        return self._state.can_end
