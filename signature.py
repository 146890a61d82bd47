"""What a caller may send and what comes back: MLflow's signature of every version.

Every input column is optional, and every param is an input column too, because `ai_query` sends
no params. Columns are AnyType, which is the only type that carries null, numbers and objects
through every payload form; `string_columns=True` makes them plain strings holding JSON text, for
consumers without AnyType and for CSV.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType

from model.fields import CONSTRAINT_FIELDS, RequestFields
from model.frames import BARE_COLUMN, SECOND_BARE_COLUMN
from model.output import OUTPUT_TYPES
from model.rows import COLUMNS

_PARAM_TYPES = {
    **dict.fromkeys(CONSTRAINT_FIELDS, DataType.string),
    "temperature": DataType.double,
    "max_tokens": DataType.long,
    "top_k": DataType.long,
    "top_p": DataType.double,
    "min_p": DataType.double,
    "repetition_penalty": DataType.double,
    "presence_penalty": DataType.double,
    "frequency_penalty": DataType.double,
    "min_tokens": DataType.long,
    "seed": DataType.long,
    "n": DataType.long,
    "logprobs": DataType.long,
    "ignore_eos": DataType.boolean,
    "stop": DataType.string,
    "system_prompt": DataType.string,
    "enable_thinking": DataType.boolean,
    "constraint_backend": DataType.string,
    "whitespace": DataType.string,
    "force_order": DataType.boolean,
    "extra_properties": DataType.boolean,
    "choice_probabilities": DataType.boolean,
    "max_retries": DataType.long,
    "fail_on_row_error": DataType.boolean,
}


def _default(name: str) -> Any:
    field = RequestFields.model_fields.get(name)
    return None if field is None or field.default == () else field.default


PARAM_DEFAULTS: dict[str, Any] = {name: _default(name) for name in _PARAM_TYPES}
INPUT_COLUMNS: tuple[str, ...] = COLUMNS
OUTPUT_COLUMNS: tuple[str, ...] = tuple(OUTPUT_TYPES)


def model_signature(string_columns: bool = False) -> ModelSignature:
    """The signature of a version. `string_columns`: all input columns are optional strings."""
    params = ParamSchema(
        [ParamSpec(name, dtype, PARAM_DEFAULTS[name]) for name, dtype in _PARAM_TYPES.items()]
    )
    return ModelSignature(inputs=_inputs(string_columns), outputs=_outputs(), params=params)


def _inputs(string_columns: bool) -> Schema:
    """A bare list arrives as the unnamed column 0, which MLflow matches only in first place.

    Declaring column 1 too lets a list of lists be refused, whose rest would be lost in silence.
    """
    column_type = DataType.string if string_columns else AnyType()
    bare_list = (BARE_COLUMN, *INPUT_COLUMNS, SECOND_BARE_COLUMN)
    names = INPUT_COLUMNS if string_columns else bare_list
    return Schema([ColSpec(column_type, name, required=False) for name in names])


def _outputs() -> Schema:
    return Schema([ColSpec(dtype, name, required=False) for name, dtype in OUTPUT_TYPES.items()])


def input_example() -> pd.DataFrame:
    """Two rows that any version answers: one free, one under a JSON schema."""
    grade = (
        '{"type":"object","properties":{"grade":{"enum":["yes","no"]}},"required":["grade"],'
        '"additionalProperties":false}'
    )
    return pd.DataFrame(
        {
            "prompt": ["Name one fruit.", "Is the sky blue? Grade the claim."],
            "json_schema": pd.Series([None, grade], dtype=object),
        }
    )
