"""Which alternatives a row has, and how their probabilities are made."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from model.alternatives import alternatives, shares
from model.errors import RowError
from model.rows import RequestRow, parse_rows


def row(**record: Any) -> RequestRow:
    (parsed,) = parse_rows([{"prompt": "hi", "choice_probabilities": True, **record}])
    assert isinstance(parsed, RequestRow), parsed
    return parsed


GRADE = {"type": "object", "properties": {"grade": {"enum": ["yes", "no"]}}, "required": ["grade"]}


@pytest.mark.parametrize(
    ("record", "texts"),
    [
        ({"choice": ["yes", "no"]}, {"yes": '["yes"]', "no": '["no"]'}),
        ({"json_schema": {"enum": ["a", 1]}}, {"a": '{"enum": ["a"]}', "1": '{"enum": [1]}'}),
        (
            {"json_schema": GRADE},
            {
                value: json.dumps({**GRADE, "properties": {"grade": {"enum": [value]}}})
                for value in ("yes", "no")
            },
        ),
    ],
)
def test_each_alternative_is_a_row_that_can_only_answer_it(record: Any, texts: Any) -> None:
    found = alternatives(row(**record, n=3, temperature=2))
    assert {text: r.constraint and r.constraint.text for text, r in found.items()} == texts
    assert all((r.fields.n, r.fields.temperature) == (1, 0) for r in found.values())


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"regex": "a"},
        {"json_schema": {"type": "string"}},
        {"json_schema": {"properties": {"a": {"enum": [1]}, "b": {"enum": [1]}}}},
        {"choice": [str(n) for n in range(65)]},
    ],
)
def test_a_constraint_without_alternatives_is_a_row_error(record: Any) -> None:
    with pytest.raises(RowError, match="1 to 64 alternatives"):
        alternatives(row(**record))


def test_probabilities_add_up_to_one_also_far_out() -> None:
    found = shares({"a": -1000.0, "b": -1000.0 - math.log(3)})
    assert found == pytest.approx({"a": 0.75, "b": 0.25})
