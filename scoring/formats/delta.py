"""Delta tables through the `deltalake` package; no Spark needed. A write is one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from scoring.errors import ScoringError, UsageError
from scoring.formats.parquet import ROW_GROUP_ROWS, open_parquet

NAME = "delta"
COMMIT_KEY = "formline.job"
LOOK_BACK = 20


def read_schema(path: str) -> pa.Schema:
    return _plain(pa.schema(_table(path).to_pyarrow_dataset().schema))


def _plain(schema: pa.Schema) -> pa.Schema:
    return schema.remove_metadata()


def read(path: str, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows in the order of the file names: the same for the same version of the table."""
    dataset = _table(path).to_pyarrow_dataset()
    for fragment in sorted(dataset.get_fragments(), key=lambda fragment: str(fragment.path)):
        keys = pads.get_partition_keys(fragment.partition_expression)
        with open_parquet(dataset.filesystem.open_input_file(fragment.path)) as opened:
            for batch in opened.iter_batches(batch_size=rows):
                yield _whole_rows(batch, schema, keys)


def _whole_rows(
    batch: pa.RecordBatch, schema: pa.Schema, partition_keys: Mapping[str, Any]
) -> pa.RecordBatch:
    """With the columns a file lacks: its partition's, and those added to the table later."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.repeat(pa.scalar(partition_keys.get(field.name), field.type), batch.num_rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write(
    path: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    job: str = "",
    overwrite: bool = False,
) -> None:
    """Commits all rows as one version that carries `job`; does nothing when it is there already."""
    if job and committed(path, job):
        return
    try:
        _commit(path, pa.RecordBatchReader.from_batches(schema, batches), job, overwrite)
    except DeltaError as error:
        raise ScoringError(f"{path}: the Delta table was not written ({error})") from error


def _commit(path: str, reader: pa.RecordBatchReader, job: str, overwrite: bool) -> None:
    commit = CommitProperties(custom_metadata={COMMIT_KEY: job})
    groups = WriterProperties(compression="ZSTD", max_row_group_size=ROW_GROUP_ROWS)
    write_deltalake(
        path,
        reader,
        mode="overwrite" if overwrite else "error",
        schema_mode="overwrite" if overwrite else None,
        commit_properties=commit,
        writer_properties=groups,
    )


def exists(path: str) -> bool:
    return DeltaTable.is_deltatable(path)


def committed(path: str, job: str) -> bool:
    """Whether one of the table's latest versions is the one that `job` wrote."""
    if not exists(path):
        return False
    return any(entry.get(COMMIT_KEY) == job for entry in DeltaTable(path).history(LOOK_BACK))


def count(path: str) -> int | None:
    return int(_table(path).to_pyarrow_dataset().count_rows())


def identity(path: str) -> dict[str, Any]:
    table = _table(path)
    return {"table": str(table.metadata().id), "version": table.version()}


def _table(path: str) -> DeltaTable:
    try:
        return DeltaTable(path)
    except TableNotFoundError as error:
        raise UsageError(f"{path}: there is no Delta table") from error
    except DeltaError as error:
        raise UsageError(f"{path}: cannot read this Delta table ({error})") from error
