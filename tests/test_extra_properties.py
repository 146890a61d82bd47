"""Keys that a schema lists nothing about: left out by default, written when asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model.constraints.compiling import compile_constraint
from model.constraints.json_parser import JsonParser
from model.constraints.spec import ConstraintSpec

LISTED = {"type": "object", "properties": {"a": {"type": "integer"}}}


def matches(schema: Any, text: str, *, extra_properties: bool = False) -> bool:
    spec = ConstraintSpec("json", json.dumps(schema), extra_properties=extra_properties)
    return JsonParser.of(compile_constraint(spec)).matches(text)


def test_unlisted_keys_are_left_out_unless_asked_for() -> None:
    assert matches(LISTED, '{"a":1}')
    assert not matches(LISTED, '{"a":1,"x":2}')
    assert matches(LISTED, '{"a":1,"x":2}', extra_properties=True)


@pytest.mark.parametrize(
    "spoken_of",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^x": {}}},
        {"propertyNames": {"maxLength": 3}},
        {"minProperties": 2},
    ],
)
def test_keys_that_the_schema_speaks_of_or_needs_may_come(spoken_of: dict[str, Any]) -> None:
    assert matches(LISTED | spoken_of, '{"a":1,"x":2}')


def test_an_object_without_listed_keys_stays_open() -> None:
    assert matches({"type": "object"}, '{"x":2}')
    assert matches({"type": "object", "required": ["x"]}, '{"x":2,"y":3}')


def test_parts_of_an_all_of_list_their_keys_together() -> None:
    schema = {"allOf": [LISTED, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}
    assert matches(schema, '{"a":1,"b":2}')
    assert not matches(schema, '{"a":1,"b":2,"x":3}')


def test_a_required_key_that_is_not_listed_may_come() -> None:
    assert matches(LISTED | {"required": ["x"]}, '{"x":2}')
