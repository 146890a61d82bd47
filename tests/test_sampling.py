"""Rows become vLLM SamplingParams within the engine's limits; wrong settings are row errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm import SamplingParams

from model.constraints.spec import ConstraintSpec
from model.errors import RequestError, RowError, UnsupportedSchema
from model.rows import RequestRow, parse_rows
from model.sampling import Limits, build_sampling_params
from signature import PARAM_DEFAULTS, model_signature

LIMITS = Limits(max_model_len=100, stop_tokens={"<|eot_id|>": 42})


def row(**record: Any) -> RequestRow:
    (parsed,) = parse_rows([{"prompt": "hi", **record}])
    assert isinstance(parsed, RequestRow), parsed
    return parsed


def error(**record: Any) -> str:
    (parsed,) = parse_rows([{"prompt": "hi", **record}])
    assert isinstance(parsed, RowError), parsed
    return parsed.message


def sampling(**record: Any) -> SamplingParams:
    return build_sampling_params(row(**record), LIMITS, prompt_tokens=10)


def test_the_articles_defaults() -> None:
    wanted = {
        "temperature": 0.1,
        "max_tokens": 512,
        "top_k": 50,
        "top_p": 0.8,
        "repetition_penalty": 1.0,
        "stop": None,
        "system_prompt": "You are a helpful assistant.",
        "json_schema": None,
    }
    assert {name: PARAM_DEFAULTS[name] for name in wanted} == wanted
    params = model_signature().params
    assert params is not None
    assert {spec.name: spec.default for spec in params} == PARAM_DEFAULTS


def test_every_field_reaches_vllm() -> None:
    given = {
        "temperature": 0.7,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.5,
        "seed": 11,
        "max_tokens": 20,
        "min_tokens": 2,
        "ignore_eos": True,
        "n": 3,
        "logprobs": 2,
    }
    params = sampling(**given)
    assert {name: getattr(params, name) for name in given} == given


def test_a_stop_that_is_a_control_token_stops_at_the_token() -> None:
    params = sampling(stop=["<|eot_id|>", "END"])
    assert (params.stop, params.stop_token_ids) == (["<|eot_id|>", "END"], [42])


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_off(top_k: int) -> None:
    assert sampling(top_k=top_k).top_k == 0


def test_the_budget_is_what_the_context_leaves() -> None:
    assert sampling(max_tokens=512, min_tokens=95).max_tokens == 90
    assert sampling(max_tokens=512, min_tokens=95).min_tokens == 90
    assert sampling(max_tokens=5).max_tokens == 5


@pytest.mark.parametrize("prompt_tokens", [100, 5000])
def test_report_32_a_prompt_longer_than_the_context_is_a_row_error(prompt_tokens: int) -> None:
    with pytest.raises(RowError, match="shorten the prompt") as caught:
        build_sampling_params(row(), LIMITS, prompt_tokens)
    assert caught.value.code == "PROMPT_TOO_LONG"


def test_a_constraint_travels_whole() -> None:
    spec = row(json_schema={"type": "object"}, whitespace="none").constraint
    assert spec == ConstraintSpec("json", '{"type":"object"}', whitespace="none")
    carried = sampling(json_schema={"type": "object"}, whitespace="none").structured_outputs
    assert ConstraintSpec.from_text(carried.json) == spec


def test_report_34_a_bad_regex_is_a_row_error() -> None:
    with pytest.raises(UnsupportedSchema):
        sampling(regex="foo**")


def test_a_schema_that_cannot_be_enforced_names_the_place() -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        sampling(json_schema={"properties": {"a": {"$ref": "http://127.0.0.1/x"}}})
    assert caught.value.pointer == "/properties/a"
    assert "$ref" in caught.value.message


WRONG: list[tuple[str, list[Any]]] = [
    ("temperature", [-1, 2.5, math.inf, "hot", True, [1], 1e400]),
    ("max_tokens", [0, -1, 10**9, 1.5, "many", True, 2**70]),
    ("top_k", [-2, 1.5, 10**8]),
    ("top_p", [0, 1.5, -1]),
    ("min_p", [-0.1, 1.1]),
    ("repetition_penalty", [0, -1, 11]),
    ("presence_penalty", [-3, 3]),
    ("frequency_penalty", [-3, 3]),
    ("min_tokens", [-1, "x"]),
    ("seed", [-1, 2**63, 1.5, "x"]),
    ("n", [0, 65, True]),
    ("logprobs", [-1, 21]),
    ("ignore_eos", [1, "yes", 0.0]),
    ("stop", ["", ["a", ""], [1], ["a"] * 17, "x" * 257, {"a": 1}]),
    ("system_prompt", [5, ["a"]]),
    ("enable_thinking", [1, "on"]),
    ("constraint_backend", ["fastest", 3]),
    ("whitespace", ["lots"]),
    ("max_retries", [-1, 6]),
]


@pytest.mark.parametrize(("name", "value"), [(name, v) for name, values in WRONG for v in values])
def test_a_wrong_value_names_field_kind_and_range(name: str, value: Any) -> None:
    message = error(**{name: value})
    assert message.startswith(f"{name} must be ")
    assert ", got " in message


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_wrong_param_fails_the_call(value: float) -> None:
    with pytest.raises(RequestError, match="temperature must be a number from 0 to 2, got a"):
        parse_rows(["hi"], {"temperature": value})


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({"json_schema": "{"}, "json_schema is not valid JSON"),
        ({"json_schema": "{'type': 'object'}"}, "json.dumps"),
        ({"json_schema": '{"minimum": NaN}'}, "NaN is not JSON"),
        ({"json_schema": "[1]"}, "must be a JSON object"),
        ({"json_schema": "[" * 100_000}, "nested too deeply"),
        ({"json_schema": '{"maximum": 1e999}'}, "cannot be written as JSON"),
        ({"json_schema": {}, "regex": "a"}, "json_schema and regex"),
        ({"choice": ["a"], "response_format": {"type": "json_object"}}, "only one constraint"),
        ({"choice": []}, "choice must be a JSON list"),
        ({"choice": ["a", ""]}, "choice must be a JSON list"),
        ({"choice": "yes"}, "choice is not valid JSON"),
        ({"regex": ""}, "regex must be text"),
        ({"grammar": 5}, "grammar must be text"),
        ({"response_format": {"type": "xml"}}, "response_format is not OpenAI's"),
        ({"response_format": {"type": "json_schema"}}, 'needs a "json_schema"'),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "schema"),
        ({"min_tokens": 600}, "at most max_tokens"),
        ({"min_tokens": 2, "regex": "a"}, "min_tokens above 1 cannot hold under a constraint"),
        ({"ignore_eos": True, "choice": ["a"]}, "ignore_eos cannot hold under a constraint"),
        ({"prompt": None}, "neither prompt nor messages"),
        ({"prompt": 5}, "prompt must be text, got an integer (5)"),
        ({"prompt": "\ud83d"}, "half a surrogate pair"),
        ({"messages": [{"role": "user", "content": "a"}]}, "either prompt or messages"),
        ({"prompt": None, "messages": []}, "without any"),
        ({"prompt": None, "messages": [{"role": "boss", "content": "a"}]}, "role must be one of"),
        ({"prompt": None, "messages": [{"role": "user", "content": None}]}, "content must be text"),
        (
            {"prompt": None, "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0]/content/0 must be a text part",
        ),
        ({"guided_json": "{}"}, "unknown columns: guided_json"),
    ],
)
def test_a_wrong_row_says_what_and_where(record: dict[str, Any], what: str) -> None:
    assert what in error(**record)


def test_report_16_an_unknown_param_that_reaches_us_is_refused() -> None:
    with pytest.raises(RequestError, match="unknown params: Temperature"):
        parse_rows(["hi"], {"Temperature": 1.0})


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*PARAM_DEFAULTS, "prompt", "messages", "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=4), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        max_size=5,
    )
)
def test_any_record_is_a_row_or_a_row_error(record: dict[str, Any]) -> None:
    parsed = list(parse_rows([record, {"prompt": "the next row"}]))
    assert len(parsed) == 2
    assert isinstance(parsed[0], (RequestRow, RowError))
    assert isinstance(parsed[1], RequestRow)


def test_numbers_as_pandas_and_csv_have_them() -> None:
    fields = row(
        max_tokens=5.0, seed=np.int64(7), temperature="0.5", n="2", ignore_eos="true"
    ).fields
    assert (fields.max_tokens, fields.seed, fields.n) == (5, 7, 2)
    assert (fields.temperature, fields.ignore_eos) == (0.5, True)


def test_report_15_the_order_of_fields_is_kept() -> None:
    spec = row(json_schema={"properties": {"z": {}, "a": {}}, "b": 1, "a": 2}).constraint
    assert spec is not None
    assert spec.text == '{"properties":{"z":{},"a":{}},"b":1,"a":2}'


@pytest.mark.parametrize(
    ("response_format", "spec"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, ConstraintSpec("json_object", "")),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "null"}}},
            ConstraintSpec("json", '{"type":"null"}'),
        ),
        (
            '{"type":"json_schema","json_schema":{"schema":{"type":"null"},"strict":true}}',
            ConstraintSpec("json", '{"type":"null"}', force_order=True),
        ),
    ],
)
def test_response_format_is_openais(response_format: Any, spec: ConstraintSpec | None) -> None:
    assert row(response_format=response_format).constraint == spec


@pytest.mark.parametrize(
    ("record", "kind", "backend"),
    [
        ({"regex": "a+"}, "regex", "formline"),
        ({"choice": '["a", "b", "a"]'}, "choice", "formline"),
        ({"grammar": "root ::= [a]"}, "grammar", "xgrammar"),
        ({"regex": "a", "constraint_backend": "guidance"}, "regex", "guidance"),
        ({"regex": "a", "constraint_backend": "lm-format-enforcer"}, "regex", "formline"),
    ],
)
def test_constraint_kinds_and_backends(record: dict[str, Any], kind: str, backend: str) -> None:
    spec = row(**record).constraint
    assert spec is not None
    assert (spec.kind, spec.backend) == (kind, backend)


def test_a_rows_settings_hold_for_the_calls_constraint() -> None:
    (parsed,) = parse_rows([{"prompt": "a", "whitespace": "none"}], {"regex": "a"})
    assert isinstance(parsed, RequestRow)
    assert parsed.constraint == ConstraintSpec("regex", "a", whitespace="none")


def test_refusal_marks_stop_every_row() -> None:
    limits = Limits(100, {"<|refused|>": 7}, ("<|refused|>", "I cannot"))
    params = build_sampling_params(row(stop="END"), limits, prompt_tokens=10)
    assert params.stop == ["END", "<|refused|>", "I cannot"]
    assert params.stop_token_ids == [7]
    assert [limits.is_refusal(reason) for reason in (7, "I cannot", "END", 8, None)] == [
        True,
        True,
        False,
        False,
        False,
    ]
