"""Cells that a text format cannot hold, as JSON text; a struct's fields become columns."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa


def to_text_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Structs flattened to `name.field` columns, other nested cells as JSON text."""
    table = pa.Table.from_batches([batch])
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    columns = [_flat(column.combine_chunks()) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, names=table.column_names)


def _flat(column: pa.Array) -> pa.Array:
    if not (pa.types.is_nested(column.type) or pa.types.is_binary(column.type)):
        return column
    cells = (None if cell is None else to_json(cell) for cell in column.to_pylist())
    return pa.array(cells, pa.string())


def to_json(value: Any) -> str:
    """Strict JSON text: NaN and infinities, which JSON lacks, are null."""
    return json.dumps(json_value(value), ensure_ascii=False)


def json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): json_value(cell) for key, cell in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(cell) for cell in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)):
        return str(value)
    return value
