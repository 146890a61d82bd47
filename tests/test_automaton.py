"""Masks and transitions over a real vocabulary: exact, shared, bounded, right under rollback."""

from __future__ import annotations

import gc
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.constraints.automaton import Automaton, State
from model.constraints.backend import FormlineGrammar, _Rows
from model.constraints.cache import Automata
from model.constraints.compiling import compile_constraint
from model.constraints.json_parser import JsonParser
from model.constraints.masks import Masks
from model.constraints.schema import compile_schema
from model.constraints.shapes import STYLES, ArrayShape, Constraint, Node, ObjectShape
from model.constraints.spec import ConstraintSpec
from model.constraints.threads import Interner, Thread
from model.constraints.vocabulary import Vocabulary

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"grade": {"enum": ["yes", "no"]}, "n": {"type": "integer"}},
     "required": ["grade"]},
    {"type": "object", "properties": {"é": {"type": "string", "pattern": "^[a-z]+$"},
     "名": {"type": "string", "maxLength": 9}}, "additionalProperties": False},
    {"type": "array", "items": {"type": ["string", "number", "null"]}, "uniqueItems": True},
    {"type": "string", "minLength": 3, "maxLength": 40},
    {"type": "object", "additionalProperties": {"type": "boolean"}},
    {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "maxLength": 4}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def vocabulary(small_model_dir: Path) -> Vocabulary:
    from transformers import AutoTokenizer

    return Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(str(small_model_dir)))


@pytest.fixture(scope="module")
def masks(vocabulary: Vocabulary) -> Masks:
    return Masks(vocabulary)


def automaton_of(schema: Any, masks: Masks, **options: Any) -> Automaton:
    spec = ConstraintSpec("json", json.dumps(schema), extra_properties=True)
    stops = frozenset(masks.vocabulary.eos_ids)
    return Automaton(compile_constraint(spec), masks, stops, **options)


def tried(automaton: Automaton, state: State) -> set[int]:
    """The allowed tokens, found by trying each one byte by byte."""
    tokens = automaton.masks.vocabulary.tokens
    found = {i for i, text in enumerate(tokens) if text and automaton._after(state, i)}
    return found | (automaton.stop_ids if state.can_end else set())


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_masks_are_exactly_the_tokens_that_can_come(schema: Any, masks: Masks) -> None:
    automaton = automaton_of(schema, masks)
    chance = random.Random(5)
    state: State | None = automaton.start
    for _ in range(4):
        assert state is not None
        allowed = set(masks.vocabulary.unpack(automaton.mask(state)).tolist())
        assert allowed == tried(automaton, state)
        following = sorted(allowed - automaton.stop_ids)
        if not following:
            break
        state = automaton.after(state, chance.choice(following))


def test_rows_share_states_and_equal_masks(masks: Masks) -> None:
    automaton = automaton_of({"type": "string"}, masks)
    tokens = masks.vocabulary.tokens
    quote, a, b = tokens.index(b'"'), tokens.index(b"a"), tokens.index(b"b")
    state = automaton.after(automaton.start, quote)
    assert state is not None
    assert automaton.after(state, a) is automaton.after(state, b) is state
    wide = automaton_of({"type": "array", "items": {"type": "string"}}, masks)
    assert wide.mask(wide.start) is wide.mask(wide.start)


def test_a_token_of_no_text_is_never_allowed(masks: Masks) -> None:
    automaton = automaton_of({}, masks)
    empty = [i for i, text in enumerate(masks.vocabulary.tokens) if not text]
    assert all(automaton.after(automaton.start, i) is None for i in (*empty, -1, 10**9))
    assert not set(empty) & set(masks.vocabulary.unpack(automaton.mask(automaton.start)).tolist())


def test_memory_stays_within_its_bound(vocabulary: Vocabulary) -> None:
    bound = 3_000_000
    automata = Automata(vocabulary, max_bytes=bound)
    stops = frozenset(vocabulary.eos_ids)
    chance = random.Random(3)
    for number in range(30):
        schema = {"type": "object", "required": [f"k{number}"], "minProperties": 3}
        automaton = automata.get(ConstraintSpec("json", json.dumps(schema)), stops)
        state: State | None = automaton.start
        for _ in range(40):
            assert state is not None
            following = vocabulary.unpack(automaton.mask(state))
            following = following[~np.isin(following, sorted(stops))]
            if not len(following):
                break
            state = automaton.after(state, int(chance.choice(following)))
    automata._trim()
    assert automata.nbytes <= bound


def test_a_grammar_takes_back_and_validates(masks: Masks) -> None:
    automaton = automaton_of({"enum": ["ab", "ac"]}, masks)
    grammar = FormlineGrammar(automaton, _Rows())
    tokens = masks.vocabulary.tokens
    quote, a, b, c = (tokens.index(t) for t in (b'"', b"a", b"b", b"c"))
    stop = min(automaton.stop_ids)
    assert grammar.validate_tokens([quote, a, quote]) == [quote, a]
    assert grammar.accept_tokens("r", [quote, a, b])
    grammar.rollback(1)
    assert not grammar.accept_tokens("r", [c, b]), "all or none"
    assert grammar.validate_tokens([c]) == [c]
    assert grammar.accept_tokens("r", [c, quote, stop, a])
    assert grammar.is_terminated()
    grammar.rollback(1)
    assert not grammar.is_terminated()
    grammar.reset()
    bitmask = torch.full((2, masks.vocabulary.words), -1, dtype=torch.int32)
    grammar.fill_bitmask(bitmask, 1)
    assert set(masks.vocabulary.unpack(bitmask[1].numpy()).tolist()) == tried(
        automaton, automaton.start
    )
    assert (bitmask[0] == -1).all()


RECURSIVE = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/tree"}, "tags": {"$ref": "#/$defs/tags"}},
            "additionalProperties": {"$ref": "#/$defs/tree"},
        },
        "tags": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"$ref": "#"}},
    },
    "$ref": "#/$defs/tree",
}


@pytest.mark.parametrize("schema", [*SCHEMAS, RECURSIVE], ids=range(len(SCHEMAS) + 1))
def test_a_dropped_automaton_leaves_nothing_to_the_garbage_collector(
    schema: Any, masks: Masks
) -> None:
    kinds = (Automaton, State, Thread, Interner, Node, ObjectShape, ArrayShape)

    def alive() -> int:
        return sum(issubclass(type(each), kinds) for each in gc.get_objects())

    gc.collect()
    before = alive()
    gc.disable()
    try:
        constraint = Constraint(compile_schema(json.dumps(schema)))
        automaton = Automaton(constraint, masks, masks.vocabulary.eos_ids)
        chance = random.Random(5)
        state: State | None = automaton.start
        for _ in range(300):
            assert state is not None
            allowed = masks.vocabulary.unpack(automaton.mask(state)).tolist()
            state = automaton.after(state, chance.choice(allowed)) or automaton.start
        assert alive() > before + 5
        del automaton, constraint, state
        assert alive() == before
    finally:
        gc.enable()


def test_threads_keep_the_nodes_that_they_read() -> None:
    parser = JsonParser.of(Constraint(compile_schema(json.dumps(RECURSIVE))))
    assert parser.matches('{"left": {"tags": ["", {"other": {}}]}}')
    assert not parser.matches('{"left": {"tags": ["", {"other": 1}]}}')


def test_a_constraint_in_another_style_shares_the_nodes() -> None:
    constraint = Constraint(compile_schema(json.dumps(RECURSIVE)))
    for _ in range(2):
        other = replace(constraint, style=STYLES["none"])
        assert JsonParser.of(other).matches('{"left":{"tags":["",{"other":{}}]}}')
    del other
    assert JsonParser.of(constraint).matches('{"left": {"tags": ["", {"other": {}}]}}')
