"""One file a format, the same names in each:

read_schema(path)                     column names and types
read(path, schema, rows)              record batches, in the file's order, a few rows at a time
write(path, schema, batches)          a new file (or table version) from record batches
count(path)                           number of rows where the format knows it, else None
identity(path)                        what tells this content from another, as JSON
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa

from scoring.errors import UsageError
from scoring.formats import csv_text, delta, json_lines, parquet


class Format(Protocol):
    """The functions each format module has."""

    NAME: str

    def read_schema(self, path: str) -> pa.Schema: ...
    def read(self, path: str, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]: ...
    def write(self, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None: ...
    def count(self, path: str) -> int | None: ...
    def identity(self, path: str) -> dict[str, Any]: ...


SUFFIXES: dict[str, Format] = {
    ".parquet": cast("Format", parquet),
    ".csv": cast("Format", csv_text),
    ".jsonl": cast("Format", json_lines),
    ".ndjson": cast("Format", json_lines),
    ".json": cast("Format", json_lines),
    ".delta": cast("Format", delta),
}
NAMES: dict[str, Format] = {module.NAME: module for module in SUFFIXES.values()}


def format_of(path: str, name: str | None = None) -> Format:
    """The format called `name`, or the one that `path` shows; UsageError when neither tells."""
    if name is not None:
        if name not in NAMES:
            raise UsageError(f"format {name!r} is not one of {', '.join(NAMES)}")
        return NAMES[name]
    place = Path(path)
    if "://" in path:
        return NAMES["delta"]
    if (place / "_delta_log").is_dir():
        return NAMES["delta"]
    if place.suffix.lower() in SUFFIXES:
        return SUFFIXES[place.suffix.lower()]
    if place.is_dir() and any(place.glob("*.parquet")):
        return NAMES["parquet"]
    raise UsageError(
        f"{path}: its name does not show its format; end it in {', '.join(SUFFIXES)} or name the "
        f"format ({', '.join(NAMES)})"
    )
