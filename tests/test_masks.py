"""Masks against trying every token byte by byte, over vocabularies that cut JSON anywhere."""

from __future__ import annotations

import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest

from model.constraints.automaton import Automaton, State
from model.constraints.compiling import compile_constraint
from model.constraints.json_parser import advance
from model.constraints.masks import Masks
from model.constraints.spec import ConstraintSpec
from model.constraints.vocabulary import Vocabulary

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "nick \"é\"": {"type": ["string", "null"], "pattern": "^[a-c😀]{2,4}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age"],
}  # fmt: skip
CASES: dict[str, tuple[Any, list[Any]]] = {
    "object": (PERSON, [{"name": "ab", "age": 12}, {"age": 0, "name": "日本", "x": [1]},
                        {"name": "", "nick \"é\"": "a😀", "age": 7, "ok": True}]),
    "union": ({"anyOf": [PERSON, {"type": "array", "items": PERSON, "minItems": 1},
                         {"type": "object", "properties": {"name": {"const": "abc"}, "kind": {}},
                          "required": ["name"], "additionalProperties": False}]},
              [[{"name": "x", "age": 1}], {"name": "abc", "kind": {"a": [None, -1.5e3]}}]),
    "numbers": ({"type": "array", "items": {"type": "number"}}, [[1, -2.5, 3e10], [0, 0.001]]),
    "unique": ({"type": "array", "items": {"type": ["string", "integer"]}, "uniqueItems": True},
               [["a", "b\n", 1, "日"], [1, 11, "1"]]),
    "keys": ({"type": "object", "patternProperties": {"^x": {"type": "array"}},
              "additionalProperties": {"enum": ["yes", "no", 1]}},
             [{"xa": [[]], "b": "yes"}, {"xa": [], "x": [], "": 1}]),
    "lengths": ({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 7,
                                            "pattern": "a+b*"}}, [["aab", "caabb"], ["ab\\"]]),
    "anywhere": ({"type": "object", "patternProperties": {"a[bé]": {"pattern": "日$|b.?\"c"}},
                  "additionalProperties": {"type": "integer"}},
                 [{"xab": "日日", "": 1, "aé\n": "ab\"cd", "n": 2}, {"ab": "x日", "aé": "b\"c"}]),
    "nested": ({"type": "array", "items": {"type": "array", "items": {"type": "array"}}},
               [[[[]], []], [[[1, {"a": 2}]]]]),
    "any": ({}, [{"a": {"b": ["c", "\u0001\"\\", "😀"]}}, "text", -1.0e-5, None]),
    "counted": ({"type": "array", "contains": {"type": "integer"}, "minContains": 1,
                 "maxContains": 2, "prefixItems": [{"type": "string"}]}, [["a", 1], ["b", 2, "3"]]),
}  # fmt: skip
TEXTS = [json.dumps(one, ensure_ascii=escaped) for _, ones in CASES.values() for one in ones
         for escaped in (False, True)]  # fmt: skip
TEXTS += [json.dumps(one, indent=2) for _, ones in CASES.values() for one in ones]


def vocabulary_of(chance: random.Random) -> Vocabulary:
    """All bytes, and pieces of answers from anywhere to anywhere."""
    pieces = {bytes([byte]) for byte in range(256)}
    for _ in range(900):
        text = chance.choice(TEXTS).encode()
        begin = chance.randrange(len(text))
        pieces.add(text[begin : begin + chance.randint(2, 14)])
    return Vocabulary.from_bytes([*sorted(pieces), b"</s>"], [len(pieces)])


def tried(automaton: Automaton, state: State) -> set[int]:
    """The allowed tokens, found byte by byte; each leads to the same state as read as a whole."""
    found = set(automaton.stop_ids) if state.can_end else set()
    for token, text in enumerate(automaton.masks.vocabulary.tokens):
        threads = state.threads if text else ()
        for byte in text:
            threads = advance(threads, byte)
        after = automaton.after(state, token)
        assert frozenset(threads) == frozenset(after.threads if after else ())
        if threads:
            found.add(token)
    return found


def random_cut(vocabulary: Vocabulary, text: bytes, chance: random.Random) -> list[int]:
    """Any of the ways to spell the text."""
    found, here = [], 0
    while here < len(text):
        node, ways = 0, []
        for byte in text[here:]:
            node = vocabulary.trie.find(bytes([byte]), node)
            if node < 0:
                break
            ways += vocabulary.trie.tokens_at(node)[:1].tolist()
        found.append(chance.choice(ways))
        here += len(vocabulary.tokens[found[-1]])
    return found


@pytest.mark.parametrize("whitespace", ["none", "compact", "flexible"])
@pytest.mark.parametrize("name", CASES)
def test_masks_are_exactly_what_can_come(
    name: str, whitespace: Literal["none", "compact", "flexible"]
) -> None:
    schema, instances = CASES[name]
    chance = random.Random(name + whitespace)
    vocabulary = vocabulary_of(chance)
    spec = ConstraintSpec("json", json.dumps(schema), whitespace=whitespace, extra_properties=True)
    automaton = Automaton(compile_constraint(spec), Masks(vocabulary), vocabulary.eos_ids)
    separators = (",", ":") if whitespace == "none" else None
    for one in instances:
        for escaped in (False, True):
            text = json.dumps(one, separators=separators, ensure_ascii=escaped).encode()
            if whitespace == "none" or not escaped:
                follow(automaton, random_cut(vocabulary, text, chance), chance)


def follow(automaton: Automaton, tokens: list[int], chance: random.Random) -> None:
    """Along the tokens as far as they are allowed, then at random: every mask is right."""
    state: State | None = automaton.start
    for turn in range(len(tokens) + 4):
        assert state is not None
        allowed = set(automaton.masks.vocabulary.unpack(automaton.mask(state)).tolist())
        assert allowed == tried(automaton, state)
        following = sorted(allowed - automaton.stop_ids)
        if not following:
            break
        wanted = tokens[turn] if turn < len(tokens) else -1
        state = automaton.after(state, wanted if wanted in allowed else chance.choice(following))


def test_several_threads_fill_masks_of_one_automaton() -> None:
    chance = random.Random(3)
    vocabulary = vocabulary_of(chance)
    schema, instances = CASES["union"]
    spec = ConstraintSpec("json", json.dumps(schema), extra_properties=True)
    rows = [random_cut(vocabulary, json.dumps(one).encode(), chance) for one in instances * 6]

    def masks_along(automaton: Automaton, tokens: list[int]) -> list[bytes]:
        state, found = automaton.start, []
        for token in tokens:
            found.append(automaton.mask(state).tobytes())
            after = automaton.after(state, token)
            assert after is not None
            state = after
        return found

    alone = Automaton(compile_constraint(spec), Masks(vocabulary), vocabulary.eos_ids)
    expected = [masks_along(alone, row) for row in rows]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            shared = Automaton(compile_constraint(spec), Masks(vocabulary), vocabulary.eos_ids)
            with ThreadPoolExecutor(len(rows)) as pool:
                found = pool.map(masks_along, [shared] * len(rows), rows)
                assert list(found) == expected
    finally:
        sys.setswitchinterval(interval)
