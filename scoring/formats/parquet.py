"""Parquet files, and directories of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scoring.errors import UsageError
from scoring.formats.files import content_identity, data_files

NAME = "parquet"
PATTERN = "*.parquet"
ROW_GROUP_ROWS = 8_192
READ_BYTES = 1 << 20  # of a column at once


def read_schema(path: str) -> pa.Schema:
    schemas = [
        open_parquet(file).schema_arrow.remove_metadata() for file in data_files(path, PATTERN)
    ]
    for schema in schemas[1:]:
        if schema != schemas[0]:
            raise UsageError(f"{path}: its Parquet files have different columns")
    return schemas[0]


def read(path: str, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    for file in data_files(path, PATTERN):
        with open_parquet(file) as opened:
            for batch in opened.iter_batches(batch_size=rows):
                yield batch.cast(schema)


def write(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in _row_groups(schema, batches):
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)


def count(path: str) -> int | None:
    return sum(int(open_parquet(file).metadata.num_rows) for file in data_files(path, PATTERN))


def identity(path: str) -> dict[str, Any]:
    return content_identity(path, PATTERN)


def open_parquet(file: Any) -> pq.ParquetFile:
    """A file to be read in parts: by itself Arrow takes in all of it before the first row."""
    try:
        return pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_BYTES)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{file}: not a Parquet file ({error})") from error


def _row_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Small batches gathered into row groups of a useful size."""
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= ROW_GROUP_ROWS:
            yield pa.Table.from_batches(pending, schema)
            pending, rows = [], 0
    if pending:
        yield pa.Table.from_batches(pending, schema)
