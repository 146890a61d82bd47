"""Answers as Arrow columns of fixed types: a column of nulls has the same type as any other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from scoring.errors import TargetError

TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()

KNOWN_TYPES: dict[str, pa.DataType] = {
    "output": TEXT,
    "finish_reason": TEXT,
    "error": TEXT,
    "prompt_tokens": WHOLE,
    "completion_tokens": WHOLE,
    "reasoning": TEXT,
    "logprob": REAL,
    "logprobs": TEXT,
    "choices": TEXT,
    "probabilities": TEXT,
}
ANSWER_SCHEMA = pa.schema(list(KNOWN_TYPES.items()))


def answer_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """One record a row; a key that is absent is null. TargetError when a value has another type."""
    columns = []
    for field in schema:
        cells = [_plain(row.get(field.name), field.type) for row in rows]
        try:
            columns.append(pa.array(cells, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TargetError(f"the answers' column {field.name}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def answers_from_frame(frame: pd.DataFrame, rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """A model's reply to `rows` rows; TargetError when it has another number of them."""
    if len(frame) != rows:
        raise TargetError(f"the model was asked {rows} rows and answered {len(frame)}")
    return answer_batch(_records(frame), schema)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): cell for name, cell in row.items()} for row in frame.to_dict("records")]


def _plain(cell: Any, wanted: pa.DataType) -> Any:
    if cell is None or cell is pd.NA or (isinstance(cell, float) and math.isnan(cell)):
        return None
    return int(cell) if pa.types.is_integer(wanted) else cell


def error_batch(messages: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Rows that were never asked: an error and nothing else."""
    return answer_batch([{"error": text, "finish_reason": "error"} for text in messages], schema)
