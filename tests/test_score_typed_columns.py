"""Answers as typed columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

from scoring.errors import UsageError
from scoring.layout import Layout
from scoring.typed_columns import arrow_type, parse_answers

TEXT, WHOLE = pa.string(), pa.int64()


class Address(BaseModel):
    street: str
    number: int | None


class Person(BaseModel):
    name: str
    score: float
    address: Address
    tags: list[str]
    active: bool


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "integer"}, WHOLE),
        ({"type": ["string", "null"]}, TEXT),
        ({"enum": ["a", "b", None]}, TEXT),
        ({"enum": [1, 2]}, WHOLE),
        ({"enum": [1, "a"]}, TEXT),
        ({"const": True}, pa.bool_()),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, pa.float64()),
        ({"anyOf": [{"type": "number"}, {"type": "string"}]}, TEXT),
        ({"type": "array", "items": {"type": "integer"}}, pa.list_(WHOLE)),
        ({"type": "object"}, TEXT),
        ({"type": "object", "properties": {"a": True}}, pa.struct([("a", TEXT)])),
        ({"type": "object", "additionalProperties": {"type": "string"}}, TEXT),
        (True, TEXT),
    ],
)
def test_types(schema: Any, wanted: pa.DataType) -> None:
    assert arrow_type(json.dumps(schema)) == wanted


def test_a_pydantic_model_is_a_struct() -> None:
    assert arrow_type(json.dumps(Person.model_json_schema())) == pa.struct(
        [
            ("name", TEXT),
            ("score", pa.float64()),
            ("address", pa.struct([("street", TEXT), ("number", WHOLE)])),
            ("tags", pa.list_(TEXT)),
            ("active", pa.bool_()),
        ]
    )


def test_recursion_is_json_text_where_it_begins_again() -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
            }
        },
    }
    wanted = arrow_type(json.dumps(schema))
    assert wanted == pa.struct([("value", WHOLE), ("next", TEXT)])
    column, errors = parse_answers(['{"value":1,"next":{"value":2}}'], [None], wanted)
    assert column.to_pylist() == [{"value": 1, "next": '{"value": 2}'}]
    assert errors == [None]


def test_a_ref_to_nowhere_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        arrow_type('{"$ref": "#/$defs/x"}')


@pytest.mark.parametrize(
    ("text", "wanted", "said"),
    [
        ("not json", WHOLE, "NOT_TYPED"),
        (str(2**63), WHOLE, "64 bits"),
        ("1.5", WHOLE, "64 bits"),
        ("true", WHOLE, "not a number"),
        ('{"a":[1,"x"]}', pa.struct([("a", pa.list_(WHOLE))]), "/a/1"),
        ("1e999", pa.int64(), "64 bits"),
        ("1" + "0" * 400, pa.float64(), "range"),
        ("[" * 100_000, pa.list_(WHOLE), "NOT_TYPED"),
    ],
)
def test_what_does_not_fit_is_null_and_says_where(text: str, wanted: Any, said: str) -> None:
    column, errors = parse_answers([text], [None], wanted)
    assert column.to_pylist() == [None]
    assert said in str(errors[0])


def test_a_whole_float_is_an_integer_and_errors_stay() -> None:
    column, errors = parse_answers(["2.0", "3", None], [None, "truncated", "X: y"], WHOLE)
    assert column.to_pylist() == [2, None, None]
    assert errors == [None, "truncated", "X: y"]


def test_names_that_collide_are_refused_and_a_prefix_helps() -> None:
    carried = pa.schema([("output", TEXT), ("prompt", TEXT)])
    answers = pa.schema([("output", TEXT), ("error", TEXT)])
    with pytest.raises(UsageError, match="--prefix"):
        Layout.plan(carried, answers, "", None)
    layout = Layout.plan(carried, answers, "llm_", '{"type":"integer"}')
    assert layout.schema.names == ["output", "prompt", "llm_output", "llm_error", "llm_parsed"]
