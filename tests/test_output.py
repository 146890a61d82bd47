"""Completions become output rows that say whether they can be relied on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow.types import DataType

from model.completion import Choice, Completion
from model.errors import DeadlineExceeded, EngineUnavailable, RowError, UnsupportedSchema
from model.output import (
    OUTPUT_TYPES,
    OutputRow,
    is_truncated,
    raise_if_wanted,
    to_error,
    to_frame,
    to_output,
)
from model.rows import RequestRow, parse_rows
from signature import model_signature

SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'


def row(**record: Any) -> RequestRow:
    (parsed,) = parse_rows([{"prompt": "hi", **record}])
    assert isinstance(parsed, RequestRow), parsed
    return parsed


def choice(text: str, finish_reason: str = "stop", **more: Any) -> Choice:
    fields = {"stop_reason": None, "logprobs": None, "cumulative_logprob": None, **more}
    return Choice(text=text, token_ids=[5, 6], finish_reason=finish_reason, **fields)


def completion(*choices: Choice) -> Completion:
    return Completion(list(choices), prompt_tokens=7, completion_tokens=2, cached_tokens=0)


def test_a_valid_answer_has_no_error() -> None:
    output = to_output(row(json_schema=SCHEMA), completion(choice('{"a": 1}')))
    assert (output.output, output.finish_reason, output.error) == ('{"a": 1}', "stop", None)
    assert (output.prompt_tokens, output.completion_tokens) == (7, 2)


def test_an_answer_that_breaks_its_schema_says_so() -> None:
    output = to_output(row(json_schema=SCHEMA), completion(choice('{"a": "x"}')))
    assert output.error == (
        "INVALID_OUTPUT: not valid at $.a: keyword 'type' of the schema is broken"
    )


@pytest.mark.parametrize("text", ['{"a": 1', '{"a": 1}'])
def test_report_33_an_answer_cut_under_a_constraint_is_truncated(text: str) -> None:
    """Also when what is there happens to be valid: more might have come."""
    output = to_output(row(json_schema=SCHEMA), completion(choice(text, "length")))
    assert (output.output, output.finish_reason, output.error) == (text, "length", "truncated")
    assert is_truncated(output)


def test_report_33_a_cut_free_text_tells_by_its_finish_reason() -> None:
    output = to_output(row(), completion(choice("once upon", "length")))
    assert (output.finish_reason, output.error) == ("length", None)


def test_report_31_reasoning_is_no_part_of_the_answer() -> None:
    output = to_output(row(json_schema=SCHEMA), completion(choice('{"a": 1}', reasoning="hm")))
    assert (output.output, output.reasoning, output.error) == ('{"a": 1}', "hm", None)


def test_more_answers_a_row() -> None:
    both = completion(choice('{"a": 1}'), choice('{"a":', "length"))
    output = to_output(row(json_schema=SCHEMA, n=2), both)
    assert output.output == '{"a": 1}'
    assert output.choices is not None
    assert [(c["output"], c["error"]) for c in json.loads(output.choices)] == [
        ('{"a": 1}', None),
        ('{"a":', "truncated"),
    ]


class Logprob:
    """The two fields of vLLM's Logprob that are read."""

    def __init__(self, text: str, logprob: float) -> None:
        self.decoded_token, self.logprob = text, logprob


def test_log_probabilities() -> None:
    ranked: Any = [{5: Logprob("a", -1.0), 9: Logprob("z", -2.0)}, {6: Logprob("b", -3.0)}]
    output = to_output(row(logprobs=1), completion(choice("ab", logprobs=ranked)))
    assert output.logprob == -2.0
    assert json.loads(output.logprobs or "") == [
        {"token": "a", "logprob": -1.0, "others": {"z": -2.0}},
        {"token": "b", "logprob": -3.0, "others": {}},
    ]


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        (RowError("no", "PROMPT_TOO_LONG"), "error", "PROMPT_TOO_LONG: no"),
        (EngineUnavailable("gone"), "error", "TEMPORARILY_UNAVAILABLE: gone"),
        (DeadlineExceeded("late"), "abort", "DEADLINE_EXCEEDED: late"),
        (
            UnsupportedSchema("too hard", pointer="/properties/a", keyword="not"),
            "error",
            "UNSUPPORTED_SCHEMA: too hard (at /properties/a, keyword 'not')",
        ),
    ],
)
def test_a_row_without_an_answer(error: Any, reason: str, text: str) -> None:
    output = to_error(error)
    assert (output.output, output.finish_reason, output.error) == (None, reason, text)


def test_frames_hold_objects_and_none_but_never_nan() -> None:
    frame = to_frame([OutputRow(output="a", prompt_tokens=3), OutputRow(error="X: y")])
    assert {str(dtype) for dtype in frame.dtypes} == {"object"}
    assert frame["prompt_tokens"].tolist() == [3, None]
    assert frame["error"].tolist() == [None, "X: y"]
    assert not any(isinstance(cell, float) for cell in frame.to_numpy().ravel())
    json.dumps(frame.to_dict("records"), allow_nan=False)


def test_an_empty_frame_has_the_columns() -> None:
    assert list(to_frame([]).columns) == list(OUTPUT_TYPES)
    assert len(to_frame([])) == 0


def test_the_signature_agrees_with_the_frame() -> None:
    outputs = model_signature().outputs
    assert outputs is not None
    assert outputs.input_names() == list(to_frame([]).columns)
    kinds = {"str": DataType.string, "int": DataType.long, "float": DataType.double}
    annotations = {n: str(f.type).split(" ")[0] for n, f in OutputRow.__dataclass_fields__.items()}
    assert outputs.input_types() == [kinds[annotations[name]] for name in OUTPUT_TYPES]


def test_report_35_batches_of_nulls_and_of_strings_share_a_parquet_file(tmp_path: Path) -> None:
    arrow = {DataType.string: pa.string(), DataType.long: pa.int64(), DataType.double: pa.float64()}
    schema = pa.schema([(name, arrow[dtype]) for name, dtype in OUTPUT_TYPES.items()])
    batches = [[OutputRow(output="a", finish_reason="stop")], [to_error(RowError("no"))]]
    path = tmp_path / "answers.parquet"
    with pq.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_pandas(to_frame(batch), schema=schema))
    assert pd.read_parquet(path)["error"].isna().tolist() == [True, False]


def test_any_row_error_fails_the_call_when_asked() -> None:
    outputs = [OutputRow(output="a", finish_reason="stop"), to_error(RowError("no"))]
    raise_if_wanted(parse_rows(["a", "b"]), outputs)
    with pytest.raises(RowError, match="1 of 2 rows failed; row 1: INVALID_ROW: no"):
        raise_if_wanted(parse_rows(["a", "b"], {"fail_on_row_error": True}), outputs)
