"""CSV with a header line, UTF-8. Every column is text: a CSV has no types, and "007" stays "007".

An empty field is null, a quoted empty field the empty text, both ways.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv

from scoring.errors import UsageError
from scoring.formats.cell_text import to_text_columns
from scoring.formats.files import content_identity, data_files

NAME = "csv"
PATTERN = "*.csv"
BLOCK_BYTES = 2 << 20  # Arrow reads some 30 ahead; also the longest row that can be read


def read_schema(path: str) -> pa.Schema:
    headers = [_header(file) for file in data_files(path, PATTERN)]
    if any(header != headers[0] for header in headers):
        raise UsageError(f"{path}: its CSV files have different columns")
    return pa.schema([(name, pa.string()) for name in headers[0]])


def _header(file: Any) -> list[str]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        header = next(csv.reader(stream), None)
    if not header:
        raise UsageError(f"{file}: empty; a CSV needs a header line")
    if len(set(header)) < len(header):
        raise UsageError(f"{file}: a column name appears twice in the header")
    return header


def read(path: str, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    for file in data_files(path, PATTERN):
        try:
            with _reader(file, schema) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise UsageError(f"{file}: {error}") from error


def _reader(file: Any, schema: pa.Schema) -> pa.csv.CSVStreamingReader:
    return pa.csv.open_csv(
        file,
        read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=schema,
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )


def write(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    empty = to_text_columns(pa.RecordBatch.from_pylist([], schema))
    with pa.csv.CSVWriter(path, empty.schema) as writer:
        for batch in batches:
            writer.write_batch(to_text_columns(batch))


def count(path: str) -> int | None:
    return None


def identity(path: str) -> dict[str, Any]:
    return content_identity(path, PATTERN)
