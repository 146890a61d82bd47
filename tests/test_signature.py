"""The signature as a registry keeps it, and what its consumers rely on."""

from __future__ import annotations

import json

from mlflow.models import ModelSignature
from mlflow.types import DataType
from mlflow.types.schema import AnyType

from model.rows import RequestRow, parse_rows
from signature import INPUT_COLUMNS, PARAM_DEFAULTS, input_example, model_signature


def test_it_survives_the_registry() -> None:
    for string_columns in (False, True):
        signature = model_signature(string_columns)
        stored = json.loads(json.dumps(signature.to_dict()))
        assert ModelSignature.from_dict(stored) == signature


def test_every_column_is_optional_and_takes_anything() -> None:
    inputs = model_signature().inputs
    assert inputs.required_input_names() == []
    assert all(isinstance(kind, AnyType) for kind in inputs.input_types())
    assert inputs.input_names() == [0, *INPUT_COLUMNS, 1]  # 0 and 1: a bare list, a list of lists


def test_string_columns_are_optional_strings() -> None:
    inputs = model_signature(string_columns=True).inputs
    assert inputs.required_input_names() == []
    assert set(inputs.input_types()) == {DataType.string}
    assert inputs.input_names() == list(INPUT_COLUMNS)


def test_every_param_is_a_column_too() -> None:
    """ai_query sends no params."""
    assert set(PARAM_DEFAULTS) - set(INPUT_COLUMNS) == {"fail_on_row_error"}


def test_the_example_is_answerable() -> None:
    assert all(isinstance(row, RequestRow) for row in parse_rows(input_example()))
