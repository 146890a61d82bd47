"""Where the rows come from: a file or table in a known format, or a DataFrame."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa

from scoring.errors import UsageError
from scoring.formats import Format, format_of

READ_ROWS = 1_024


class Source(Protocol):
    """Rows with a schema, in an order that is the same each time."""

    @property
    def schema(self) -> pa.Schema: ...
    def batches(self) -> Iterator[pa.RecordBatch]: ...
    def rows(self) -> int | None: ...
    def identity(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class FileSource:
    """A file, a directory of files, or a Delta table."""

    path: str
    format: Format
    schema: pa.Schema

    @classmethod
    def open(cls, path: str, format_name: str | None = None) -> FileSource:
        """UsageError when the path is not there or not readable as its format."""
        found = format_of(path, format_name)
        return cls(path, found, found.read_schema(path))

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.format.read(self.path, self.schema, READ_ROWS)

    def rows(self) -> int | None:
        return self.format.count(self.path)

    def identity(self) -> dict[str, Any]:
        return {"format": self.format.NAME, **self.format.identity(self.path)}


class FrameSource:
    """A pandas DataFrame; its index is not carried."""

    def __init__(self, frame: pd.DataFrame) -> None:
        try:
            self._table = pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UsageError(
                f"the DataFrame cannot be carried as Arrow columns: {error}. Turn cells of mixed "
                "kinds into JSON text first"
            ) from error
        self.schema = self._table.schema.remove_metadata()

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._table.replace_schema_metadata(None).to_batches(READ_ROWS))

    def rows(self) -> int | None:
        return int(self._table.num_rows)

    def identity(self) -> dict[str, Any]:
        digest = hashlib.blake2b(digest_size=16)
        for batch in self.batches():
            digest.update(batch.serialize())
        return {"format": "frame", "content": digest.hexdigest()}
