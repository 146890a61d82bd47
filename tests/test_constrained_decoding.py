"""Constraints through the real engine: one batch, many kinds, several backends."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from model.completion import Completion, EngineRequest
from model.constraints.spec import ConstraintSpec
from model.errors import FormlineError, UnsupportedSchema
from tests.constraint_walks import constraint_of, is_valid

if TYPE_CHECKING:
    from model.engine import Engine

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

PERSON = {
    "type": "object",
    "properties": {
        "名前": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["😀", "開心"]},
    },
    "required": ["名前", "age", "mood"],
    "additionalProperties": False,
}


def run(engine: Engine, specs: list[ConstraintSpec], max_tokens: int = 120) -> list[Any]:
    ids = engine.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Describe 田中 as JSON: 名前, age and mood."}],
        add_generation_prompt=True,
        return_dict=False,
    )
    requests = [
        EngineRequest(
            ids,
            SamplingParams(
                temperature=0.1,
                max_tokens=max_tokens,
                structured_outputs=StructuredOutputsParams(json=spec.to_text()),
            ),
        )
        for spec in specs
    ]
    found = dict(engine.generate(requests, deadline_s=240))
    return [found[position] for position in range(len(specs))]


def texts(results: list[Any]) -> list[tuple[str, str]]:
    assert all(isinstance(result, Completion) for result in results), results
    return [(result.choices[0].text, result.choices[0].finish_reason) for result in results]


def test_kinds_and_backends_share_a_batch(engine: Engine) -> None:
    person = json.dumps(PERSON)
    specs = [
        ConstraintSpec("json", person),
        ConstraintSpec("json", person, whitespace="none", force_order=True),
        ConstraintSpec("json", person, backend="xgrammar"),
        ConstraintSpec("json", '{"enum": ["yes", "no"]}', backend="guidance"),
        ConstraintSpec("regex", "[0-9]{3}-[0-9]{4}"),
        ConstraintSpec("choice", '["red", "green"]'),
        ConstraintSpec("choice", '["red", "green"]', backend="xgrammar"),
        ConstraintSpec("grammar", 'root ::= "a" | "b"'),
    ]
    results = texts(run(engine, specs))
    assert all(is_valid(PERSON, text.encode()) for text, _ in results[:3])
    assert list(json.loads(results[1][0])) == ["名前", "age", "mood"]
    assert results[1][0].startswith('{"名前":"')
    assert json.loads(results[3][0]) in ("yes", "no")
    assert len(results[4][0]) == 8
    assert {results[5][0], results[6][0]} <= {"red", "green"}
    assert results[7][0] in ("a", "b")
    assert {reason for _, reason in results} == {"stop"}


def test_a_bad_constraint_is_its_rows_error_alone(engine: Engine) -> None:
    specs = [
        ConstraintSpec("json", '{"enum": ["yes"]}'),
        ConstraintSpec("json", '{"type": "string", "pattern": "foo**"}'),
    ]
    good, bad = run(engine, specs)
    assert texts([good]) == [('"yes"', "stop")]
    assert isinstance(bad, FormlineError)
    assert "pattern" in str(bad)


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared test data is not here")
def test_sixty_four_rows_with_a_schema_each(engine: Engine) -> None:
    """Every answer that the model finishes is valid for its own schema."""
    with gzip.open(DATA / "jsonschemabench.jsonl.gz", "rt", encoding="utf-8") as lines:
        every = [json.loads(line) for line in lines]
    random.Random(4).shuffle(every)
    schemas: list[Any] = []
    for case in every:
        if len(schemas) == 64:
            break
        if len(json.dumps(case["schema"])) < 3000 and case["split"] != "Github_trivial":
            try:
                constraint_of(case["schema"])
            except UnsupportedSchema:
                continue
            schemas.append(case["schema"])
    specs = [ConstraintSpec("json", json.dumps(schema)) for schema in schemas]
    results = texts(run(engine, specs, max_tokens=96))
    finished = [
        (schema, text)
        for schema, (text, why) in zip(schemas, results, strict=True)
        if why == "stop"
    ]
    assert len(finished) > 16
    for schema, text in finished:
        assert is_valid(schema, text.encode()), (schema, text)
