"""JSON Lines: one object a line.

Column types come from the whole file, read once for it, so that no later line can break the job.
Objects are carried as JSON text (a struct would turn keys that are absent into nulls) and written
as objects again; a column whose cells differ in kind becomes text for good.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from scoring.errors import UsageError
from scoring.formats.cell_text import to_json
from scoring.formats.files import content_identity, data_files

NAME = "jsonl"
PATTERN = "*.json*"
LINES_AT_ONCE = 1_000

TEXT = pa.string()
OBJECTS = pa.large_binary()  # stands for "objects, or lists of them" while types are being found
JSON_MARK = {b"formline": b"json"}


def read_schema(path: str) -> pa.Schema:
    types: dict[str, pa.DataType] = {}
    for rows in _row_lists(path, LINES_AT_ONCE):
        for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
            found = _cell_type([row.get(name) for row in rows])
            types[name] = _common(types.get(name, pa.null()), found)
    return pa.schema([_field(name, found) for name, found in types.items()])


def _cell_type(cells: list[Any]) -> pa.DataType:
    if any(_holds_object(cell) for cell in cells):
        return TEXT if any(isinstance(cell, str) for cell in cells) else OBJECTS
    try:
        return pa.array(cells).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return TEXT


def _holds_object(cell: Any) -> bool:
    return isinstance(cell, dict) or (isinstance(cell, list) and any(map(_holds_object, cell)))


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if OBJECTS in (one, other):
        return TEXT
    try:
        merged = pa.unify_schemas(
            [pa.schema([("", one)]), pa.schema([("", other)])], promote_options="permissive"
        )
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return TEXT
    return merged.field(0).type


def _field(name: str, found: pa.DataType) -> pa.Field:
    if found == OBJECTS:
        return pa.field(name, TEXT, metadata=JSON_MARK)
    return pa.field(name, _settled(found))


def _settled(found: pa.DataType) -> pa.DataType:
    """A column that was null (or an empty list) in every line has no type of its own: text."""
    if pa.types.is_null(found):
        return TEXT
    if pa.types.is_list(found):
        return pa.list_(_settled(found.value_type))
    return found


def read(path: str, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    for listed in _row_lists(path, rows):
        columns = [_column([row.get(field.name) for row in listed], field) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(cells: list[Any], field: pa.Field) -> pa.Array:
    if pa.types.is_string(field.type):
        cells = [cell if isinstance(cell, str | None) else to_json(cell) for cell in cells]
    return pa.array(cells, field.type)


def _row_lists(path: str, size: int) -> Iterator[list[dict[str, Any]]]:
    for file in data_files(path, PATTERN):
        rows = _rows(file)
        while listed := list(itertools.islice(rows, size)):
            yield listed


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield _object(line, f"{file.name}, line {number}")


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise UsageError(f"{where}: a row must be a JSON object, not {type(row).__name__}")
    return row


def write(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    marked = [field.name for field in schema if field.metadata == JSON_MARK]
    with Path(path).open("w", encoding="utf-8") as stream:
        for batch in batches:
            for row in batch.to_pylist():
                objects = {name: json.loads(row[name]) for name in marked if row[name] is not None}
                stream.write(to_json(row | objects) + "\n")


def count(path: str) -> int | None:
    return None


def identity(path: str) -> dict[str, Any]:
    return content_identity(path, PATTERN)
