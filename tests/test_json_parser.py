"""The parser as LM Format Enforcer sees it, the probes, and random walks that must end validly."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lmformatenforcer import CharacterLevelParser

from model.constraints.compiling import compile_constraint
from model.constraints.json_parser import JsonParser
from model.constraints.spec import ConstraintSpec
from model.errors import UnsupportedSchema
from tests.constraint_walks import accepts, constraint_of, is_valid, walk

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the shared test data is not here")

# jsonschema sees the last of two equal keys and is content; an answer never holds a key twice.
STRICTER_THAN_JSONSCHEMA = {"dup keys dict"}


@needs_data
def test_probes_are_judged_right_or_refused() -> None:
    wrong, refused = [], []
    for line in (DATA / "constraint_cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        try:
            if accepts(case["schema"], case["text"]) != case["valid"]:
                wrong.append(case["name"])
        except UnsupportedSchema:
            refused.append(case["name"])
    assert set(wrong) <= STRICTER_THAN_JSONSCHEMA
    assert len(refused) <= 5


def _schemas(count: int) -> list[Any]:
    with gzip.open(DATA / "jsonschemabench.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line)["schema"] for line in lines]
    return random.Random(7).sample(found, count)


@needs_data
def test_random_walks_over_real_schemas_end_validly() -> None:
    """Part of what `python -m benchmarks.walks` does over the same data."""
    chance = random.Random(11)
    walked = 0
    for schema in _schemas(40):
        try:
            constraint = constraint_of(schema)
        except UnsupportedSchema:
            continue
        for _ in range(8):
            text = walk(constraint, chance)
            assert is_valid(schema, text), (schema, text)
            walked += 1
    assert walked > 250


scalars = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "maxLength": 3},
        {"type": "string", "pattern": "^[ab]{2,}$", "maxLength": 6},
        {"type": "string", "format": "date"},
        {"type": "integer", "minimum": -5, "maximum": 12},
        {"type": "integer", "multipleOf": 3},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "boolean"},
        {"type": ["null", "integer"]},
        {"enum": ["a", "é😀", 1, None, [1]]},
        {"const": {"k": "v"}},
        {"not": {"type": ["object", "array"]}},
        {},
    ]
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "名", 'q"t'])
    objects = st.builds(
        lambda properties, required, more, closed: {
            "type": "object",
            "properties": properties,
            "required": sorted(required & set(properties)),
            **({"additionalProperties": False} if closed else {}),
            **more,
        },
        st.dictionaries(names, inner, max_size=3),
        st.sets(names, max_size=3),
        st.sampled_from(
            [{}, {"maxProperties": 3}, {"minProperties": 1}, {"propertyNames": {"maxLength": 4}}]
        ),
        st.booleans(),
    )
    arrays = st.builds(
        lambda items, low, extra: {"type": "array", "items": items, "minItems": low,
                                   "maxItems": low + extra},
        inner, st.integers(0, 2), st.integers(0, 2),
    )  # fmt: skip
    unions = st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
    both = st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner)
    return st.one_of(objects, arrays, unions, both)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.recursive(scalars, _containers, max_leaves=6), st.integers(0, 2**32))
def test_walks_over_made_up_schemas_end_validly(schema: Any, seed: int) -> None:
    try:
        constraint = constraint_of(schema)
    except UnsupportedSchema:
        return  # refusals have tests of their own
    chance = random.Random(seed)
    for _ in range(4):
        text = walk(constraint, chance)
        assert is_valid(schema, text), (schema, text)


def test_it_is_a_parser_of_lm_format_enforcer() -> None:
    parser: CharacterLevelParser = JsonParser.of(constraint_of({"enum": ["ab", "ac"]}))
    assert parser.get_allowed_characters() == '"'
    for character in '"a':
        parser = parser.add_character(character)
    assert set(parser.get_allowed_characters()) == {"b", "c", "\\"}
    assert not parser.can_end()
    assert parser.add_character("b").add_character('"').can_end()
    assert parser.cache_key() == parser.cache_key()


def test_equal_places_are_one_state() -> None:
    start = JsonParser.of(constraint_of({"type": "array", "items": {"type": "boolean"}}))
    once = start.add_character("[")
    for character in "true,":
        once = once.add_character(character)
    twice = once
    for character in "false,":
        twice = twice.add_character(character)
    assert once.cache_key() == twice.cache_key()
    assert hash(once.cache_key()) == hash(twice.cache_key())


@pytest.mark.parametrize(
    ("kind", "text", "valid", "invalid"),
    [
        ("regex", "[0-9]{3}-[0-9]{4}", ["555-1234"], ["5551234", "555-12345"]),
        ("regex", "a.c", ["abc", "a😀c"], ["ac"]),
        ("choice", '["red", "redder", "青"]', ["red", "redder", "青"], ["re", "reddest"]),
        ("json_object", "", ['{"a":1}'], ["[]", "1"]),
    ],
)
def test_other_kinds(kind: Any, text: str, valid: list[str], invalid: list[str]) -> None:
    parser = JsonParser.of(compile_constraint(ConstraintSpec(kind, text)))
    assert [t for t in valid if not parser.matches(t)] == []
    assert [t for t in invalid if parser.matches(t)] == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", "foo**"),
        ("regex", r"(a)\1"),
        ("choice", "[]"),
        ("choice", "[1]"),
        ("choice", '[""]'),
    ],
)
def test_other_kinds_refuse(kind: Any, text: str) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        compile_constraint(ConstraintSpec(kind, text))
    assert caught.value.keyword == kind


def test_depth_is_bounded_and_never_a_dead_end() -> None:
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    }
    parser = JsonParser.of(constraint_of(schema))
    assert parser.matches("[" * 64 + "]" * 64)
    assert not parser.matches("[" * 65 + "]" * 65)
