"""What a JSON schema allows once compiled: users' reports, every keyword, and honest refusals."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import enum
import json
import time
import uuid
from typing import Annotated, Any, Literal, Optional

import pydantic
import pytest
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from model.constraints.schema import compile_schema
from model.constraints.shapes import STYLES
from model.errors import UnsupportedSchema
from tests.constraint_walks import accepts


def refusal(schema: Any) -> UnsupportedSchema:
    with pytest.raises(UnsupportedSchema) as caught:
        compile_schema(schema if isinstance(schema, str) else json.dumps(schema))
    return caught.value


def obj(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


class TestReports:
    def test_report_1_free_form_parameters_keep_their_keys(self) -> None:
        schema = {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": t} for t in ("string", "number", "boolean")]
            },
        }
        assert accepts(schema, '{"temperature":0.5,"name":"x","on":true}')
        assert not accepts(schema, '{"a":null}')

    def test_report_2_union_of_references_with_a_shared_name(self) -> None:
        schema = {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]},
            "$defs": {
                "a": obj({"id": {"type": "integer"}, "a": {"type": "string"}}, required=["id", "a"],
                         additionalProperties=False),
                "b": obj({"id": {"type": "integer"}, "b": {"type": "string"}}, required=["id", "b"],
                         additionalProperties=False),
            },
        }  # fmt: skip
        assert accepts(schema, '[{"id":1,"a":"x"},{"id":2,"b":"y"}]')
        assert not accepts(schema, '[{"id":1,"a":"x","b":"y"}]')

    def test_report_3_names_and_words_of_any_script(self) -> None:
        schema = obj({"姓氏": {"type": "string"}, "w": {"enum": ["在线", "北京", "😀"]}})
        assert accepts(schema, '{"姓氏":"王","w":"北京"}', style=STYLES["none"])
        assert accepts(schema, '{"姓氏":"王","w":"😀"}', style=STYLES["none"])
        assert accepts(schema, json.dumps({"姓氏": "王", "w": "😀"}))
        assert not accepts(schema, '{"w":"上海"}')

    def test_report_4_bounds_of_integers(self) -> None:
        schema = obj({"n": {"type": "integer", "minimum": 1, "maximum": 5}}, required=["n"])
        assert [n for n in range(-9, 20) if accepts(schema, json.dumps({"n": n}))] == [
            1,
            2,
            3,
            4,
            5,
        ]

    def test_report_5_pattern_with_length(self) -> None:
        schema = {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4}
        words = ["a", "ab", "abcd", "abcde", "aB"]
        assert [w for w in words if accepts(schema, json.dumps(w))] == ["ab", "abcd"]

    def test_report_6_pattern_is_a_search(self) -> None:
        assert accepts({"type": "string", "pattern": "^Fifty"}, '"Fifty shades"')
        assert accepts({"type": "string", "pattern": "fif"}, '"a fifth"')

    def test_report_7_one_of_number_and_pair(self) -> None:
        pair = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
        schema = {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 500}, pair]}
        texts = ["7", "501", "[1,2]", "[1]", "[1,2,3]"]
        assert [t for t in texts if accepts(schema, t)] == ["7", "[1,2]"]

    def test_report_8_discriminated_union(self) -> None:
        class Cat(BaseModel):
            kind: Literal["cat"]
            lives: int

        class Dog(BaseModel):
            kind: Literal["dog"]
            tricks: list[str]

        class Owner(BaseModel):
            pet: Annotated[Cat | Dog, Field(discriminator="kind")]

        schema = Owner.model_json_schema()
        assert accepts(schema, '{"pet":{"kind":"dog","tricks":["sit"]}}')
        assert not accepts(schema, '{"pet":{"kind":"cat","tricks":["sit"]}}')

    def test_report_9_control_bytes_and_escapes(self) -> None:
        schema = {"type": "string", "maxLength": 200}
        assert not accepts(schema, '"a\tb"')
        assert not accepts(schema, r'"won\'t"')
        assert accepts(schema, json.dumps('He said "Net Equity"\t'))

    def test_report_10_no_endless_whitespace(self) -> None:
        schema = obj({"age": {"type": "integer"}}, required=["age"])
        assert accepts(schema, '{"age": 7}')
        assert not accepts(schema, '{"age":\n7}')
        assert not accepts(schema, "{\n\n" + '"age":7}')
        assert not accepts(schema, "{" + " " * 41 + '"age":7}')

    def test_report_11_array_without_a_maximum_has_no_silent_cap(self) -> None:
        schema = obj({"tags": {"type": "array", "items": {"type": "string"}}})
        assert accepts(schema, json.dumps({"tags": ["x"] * 500}))

    def test_report_12_hundreds_of_nullable_fields(self) -> None:
        field = {"anyOf": [{"type": "string"}, {"type": "null"}]}
        schema = obj({f"f{i}": field for i in range(400)}, required=["f399"])
        assert accepts(schema, '{"f399":null,"f0":"x"}')

    def test_report_13_recursion(self) -> None:
        class Dossier(BaseModel):
            name: str
            friends: list[Dossier]

        schema = Dossier.model_json_schema()
        inner = {"name": "a", "friends": []}
        assert accepts(schema, json.dumps({"name": "b", "friends": [inner, inner]}))
        assert not accepts(schema, json.dumps({"name": "b", "friends": [{"name": "a"}]}))

    def test_report_14_refusal_says_where_and_why(self) -> None:
        error = refusal(obj({"a": {"type": "string", "pattern": r"(x)\1"}}))
        assert (error.pointer, error.keyword) == ("/properties/a", "pattern")
        assert "/properties/a" in str(error)

    def test_report_15_properties_keep_the_schemas_order(self) -> None:
        schema = obj({"z": {"type": "integer"}, "a": {"type": "integer"}}, required=["z", "a"])
        assert accepts(schema, '{"z":1,"a":2}', force_order=True)
        assert not accepts(schema, '{"a":2,"z":1}', force_order=True)
        assert accepts(schema, '{"a":2,"z":1}')

    def test_report_36_no_reference_is_fetched(self) -> None:
        error = refusal({"$ref": "http://127.0.0.1:9/schema.json"})
        assert (error.pointer, error.keyword) == ("", "$ref")

    def test_report_37_nested_one_of_ends_soon(self) -> None:
        schema: dict[str, Any] = {"type": "string"}
        for depth in range(20):
            schema = {"oneOf": [{"properties": {f"p{depth}": schema}}, {"minProperties": depth}]}
        started = time.monotonic()
        with contextlib.suppress(UnsupportedSchema):
            compile_schema(json.dumps(schema))
        assert time.monotonic() - started < 60  # a bound on hanging, not a speed

    def test_report_37_catastrophic_pattern_compiles(self) -> None:
        assert accepts({"type": "string", "pattern": "^(a+)+$"}, '"' + "a" * 40 + '"')
        assert not accepts({"type": "string", "pattern": "^(a+)+$"}, '"' + "a" * 40 + 'b"')


OBJECT_CASES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"propertyNames": {"pattern": "^a"}}, ['{"ab":1}', "{}"], ['{"b":1}']),
    ({"propertyNames": {"maxLength": 1}}, ['{"b":1}'], ['{"bb":1}']),
    ({"patternProperties": {"^x": {"type": "integer"}}}, ['{"xa":1,"b":"s"}'], ['{"xa":"s"}']),
    ({"patternProperties": {"^x": {}}, "additionalProperties": False}, ['{"x":1}'], ['{"y":1}']),
    ({"minProperties": 2}, ['{"a":1,"b":1}'], ["{}", '{"a":1}']),
    ({"maxProperties": 1, "required": ["r"]}, ['{"r":1}'], ['{"a":1,"r":1}', '{"a":1}']),
    ({"dependentRequired": {"a": ["b"]}}, ['{"a":1,"b":1}', '{"b":1}'], ['{"a":1}']),
    ({"dependentSchemas": {"a": {"required": ["c"]}}}, ['{"c":1,"a":1}', "{}"], ['{"a":1}']),
    ({"required": ["a"], "properties": {"a": {"const": None}}}, ['{"a":null}'], ['{"a":0}', "{}"]),
    ({"additionalProperties": False}, ["{}"], ['{"a":1}']),
    ({"not": {"required": ["a"]}}, ["{}", '{"b":1}'], ['{"a":1}']),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, ["{}", '{"b":1}'], ['{"a":1}']),
    ({"properties": {"a": False}}, ['{"b":1}'], ['{"a":1}']),
    ({"patternProperties": {"^[ab]$": True}, "additionalProperties": False},
     ['{"a":1,"b":2}'], ['{"a":1,"a":2}', '{"c":1}']),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, ['{"a":1}', '{"b":1}'],
     ["{}", '{"a":1,"b":1}']),
    ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": True}}]},
     ['{"a":1}'], ['{"b":1}']),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "valid", "invalid"), OBJECT_CASES)
def test_objects(schema: dict[str, Any], valid: list[str], invalid: list[str]) -> None:
    full = {"type": "object", **schema}
    assert [t for t in valid if not accepts(full, t)] == []
    assert [t for t in invalid if accepts(full, t)] == []


ARRAY_CASES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"prefixItems": [{"type": "integer"}], "items": False}, ["[]", "[1]"], ["[1,2]", '["a"]']),
    ({"contains": {"type": "integer"}}, ['["a",1]'], ["[]", '["a"]']),
    ({"contains": {"const": 1}, "maxContains": 1, "maxItems": 3}, ["[1]", "[0,1]"], ["[1,1]"]),
    ({"contains": {"const": 1}, "minContains": 2}, ["[1,0,1]"], ["[1]"]),
    ({"items": {"enum": ["a", "b"]}, "uniqueItems": True}, ['["a","b"]'], ['["a","a"]']),
    ({"items": {"type": "integer"}, "uniqueItems": True}, ["[1,2,11]"], ["[1,2,1]"]),
    ({"minItems": 1, "maxItems": 2}, ["[1]", "[1,2]"], ["[]", "[1,2,3]"]),
    ({"items": {"type": ["null", "boolean"]}}, ["[null,true]"], ["[0]"]),
    ({"prefixItems": [True], "unevaluatedItems": False}, ["[1]"], ["[1,2]"]),
]


@pytest.mark.parametrize(("schema", "valid", "invalid"), ARRAY_CASES)
def test_arrays(schema: dict[str, Any], valid: list[str], invalid: list[str]) -> None:
    full = {"type": "array", **schema}
    assert [t for t in valid if not accepts(full, t)] == []
    assert [t for t in invalid if accepts(full, t)] == []


class Color(enum.Enum):
    RED = "red"
    BLUE = 3


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Movie(TypedDict, total=False):
    title: str
    year: int


FIELD_VALUES: list[tuple[Any, Any]] = [
    (bool, True),
    (int, -3),
    (float, 2.5),
    (str, "é"),
    (bytes, "raw"),
    (decimal.Decimal, "1.5"),
    (datetime.datetime, "2024-02-29T10:00:00Z"),
    (datetime.date, "2024-02-29"),
    (datetime.time, "10:00:00Z"),
    (datetime.timedelta, "P1DT2H"),
    (uuid.UUID, "123e4567-e89b-12d3-a456-426614174000"),
    (list[int], [1, 2]),
    (tuple[int, str], [1, "a"]),
    (tuple[int, ...], [1, 2, 3]),
    (set[int], [1, 2]),
    (frozenset[str], ["a", "b"]),
    (dict[str, int], {"a": 1}),
    (dict[int, str], {"1": "a"}),
    (Optional[int], None),  # noqa: UP045
    (int | str | None, "x"),
    (Literal["a", 1, None], 1),
    (Color, 3),
    (Any, {"free": [1]}),
    (Point, {"x": 1.5}),
    (Movie, {"title": "t"}),
    (pydantic.EmailStr if hasattr(pydantic, "EmailStr") else str, "a@example.com"),
    (pydantic.AnyUrl, "https://example.com/x"),
    (pydantic.conint(ge=1, le=5), 5),
    (pydantic.constr(min_length=2, max_length=3, pattern="^a"), "ab"),
    (pydantic.conlist(int, min_length=1, max_length=2), [1]),
    (Annotated[float, Field(gt=0, lt=1)], 0.25),
    (Annotated[int, Field(multiple_of=5)], 15),
    (pydantic.IPvAnyAddress, "127.0.0.1"),
    (pydantic.Json[int], "1"),
    (pydantic.SecretStr, "s"),
    (list[list[Point]], [[{"x": 1, "y": 2}]]),
]


@pytest.mark.parametrize(("type_", "value"), FIELD_VALUES, ids=lambda value: str(value)[:40])
def test_pydantic_types_compile_and_take_their_values(type_: Any, value: Any) -> None:
    if type_ is pydantic.EmailStr:
        pytest.importorskip("email_validator")
    schema = TypeAdapter(type_).json_schema()
    assert accepts(schema, json.dumps(value))
    assert type_ in (Any, Movie) or not accepts(schema, '{"no such": ["shape", {}, 17]}')


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"type": "strin"}, "", "type"),
        ({"items": {"minLength": -1, "type": "string"}}, "/items", "minLength"),
        (obj({"a/b": {"$ref": "#/$defs/none"}}), "/properties/a~1b", "$ref"),
        ({"exclusiveMinimum": True}, "", "exclusiveMinimum"),
        ({"type": "string", "pattern": "foo**"}, "", "pattern"),
        ({"anyOf": []}, "", "anyOf"),
        ({"$ref": "#"}, "", "$ref"),
        (
            {"type": "array", "items": {"type": "object"}, "uniqueItems": True},
            "/items",
            "uniqueItems",
        ),
        ({"required": True}, "", "required"),
    ],
)
def test_refusals_name_the_place(schema: Any, pointer: str, keyword: str) -> None:
    error = refusal(schema)
    assert (error.pointer, error.keyword) == (pointer, keyword)


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"enum": ["a"], "pattern": "^x", "type": "string"},
        obj({"a": False}, required=["a"]),
        {"$ref": "#/$defs/n", "$defs": {"n": obj({"n": {"$ref": "#/$defs/n"}}, required=["n"])}},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "array", "minItems": 2, "items": {"const": 1}, "uniqueItems": True},
    ],
)
def test_contradictions_are_refused(schema: Any) -> None:
    assert "no value can satisfy" in refusal(schema).reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "12",
        "NaN",
        '{"type": NaN}',
        "[" * 5000,
        '{"a":' * 2000 + "1" + "}" * 2000,
    ],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    assert refusal(text).reason


def test_deep_chains_of_references_are_bounded() -> None:
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(3000)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**chain, "d3000": {"type": "null"}}}
    assert refusal(schema).reason


def test_drafts_differ_where_they_should() -> None:
    draft4 = "http://json-schema.org/draft-04/schema#"
    assert not accepts({"$schema": draft4, "type": "integer"}, "1.0")
    assert accepts({"type": "integer"}, "1.0")
    bounds = {"minimum": 1, "exclusiveMinimum": True, "type": "integer"}
    assert not accepts({"$schema": draft4, **bounds}, "1")
    assert accepts({"$schema": draft4, **bounds}, "2")
    draft7 = "http://json-schema.org/draft-07/schema#"
    ref = {"$ref": "#/definitions/s", "maxLength": 1, "definitions": {"s": {"type": "string"}}}
    assert accepts({"$schema": draft7, **ref}, '"ab"')
    assert not accepts(ref, '"ab"')


def test_anchors_ids_and_escaped_pointers() -> None:
    schema = {
        "properties": {
            "a": {"$ref": "#here"},
            "b": {"$ref": "#/$defs/x~1y~0z"},
            "c": {"$ref": "#/$defs/p%25q"},
            "d": {"$ref": "http://example.com/inner#/$defs/n"},
        },
        "$defs": {
            "h": {"$anchor": "here", "type": "integer"},
            "x/y~z": {"type": "boolean"},
            "p%q": {"type": "null"},
            "inner": {"$id": "http://example.com/inner", "$defs": {"n": {"type": "string"}}},
        },
    }
    assert accepts(schema, '{"a":1,"b":true,"c":null,"d":"s"}')
    for bad in ('{"a":"s"}', '{"b":1}', '{"c":1}', '{"d":1}'):
        assert not accepts(schema, bad)


def test_styles_bound_whitespace() -> None:
    text = '{"a": [1, 2]}'
    schema = {"type": "object"}
    assert not accepts(schema, text, style=STYLES["none"])
    assert accepts(schema, text, style=STYLES["compact"])
    assert not accepts(schema, '{ "a": 1}', style=STYLES["compact"])
    assert accepts(schema, '{\n  "a": 1\n}', style=STYLES["flexible"])


def test_idle_escapes_are_accepted_but_not_written() -> None:
    assert accepts({"const": "no"}, '"n\\u006f"')
    assert not accepts({"const": "no"}, '"n\\u006f"', style=STYLES["flexible"])
    assert accepts({"const": "é"}, '"\\u00e9"', style=STYLES["flexible"])
