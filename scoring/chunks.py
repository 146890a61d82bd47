"""Rows in order, cut into chunks of a fixed size: the same input gives the same chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Chunk:
    """Rows `index * chunk_rows` onwards of the input."""

    index: int
    table: pa.Table

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)


def cut(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int) -> Iterator[Chunk]:
    """Chunks of exactly `rows` rows (the last may be shorter), whatever the batches' sizes."""
    pending: list[pa.RecordBatch] = []
    held = 0
    index = 0
    for batch in batches:
        while held + batch.num_rows >= rows:
            taken = rows - held
            pending.append(batch.slice(0, taken))
            yield Chunk(index, pa.Table.from_batches(pending, schema))
            batch = batch.slice(taken)
            pending, held, index = [], 0, index + 1
        if batch.num_rows:
            pending.append(batch)
            held += batch.num_rows
    if pending:
        yield Chunk(index, pa.Table.from_batches(pending, schema))
