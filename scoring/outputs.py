"""Where the answered rows go: a file that appears at once, a Delta commit, or a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from scoring.checkpoint import sync_folder
from scoring.errors import UsageError
from scoring.formats import Format, delta, format_of


class Output(Protocol):
    """Takes all rows at the end. `write` may be repeated after a kill, and ends the same."""

    @property
    def name(self) -> str: ...
    def identity(self) -> str: ...
    def check_free(self, overwrite: bool) -> None: ...
    def work_path(self, under: Path | None) -> Path: ...
    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], job: str) -> None: ...


def work_folder(parent: Path, name: str) -> Path:
    """The hidden folder for an output's parts: a name no other file has, for it is emptied."""
    return parent / f".{name}.formline"


def open_output(path: str, format_name: str | None = None, overwrite: bool = False) -> Output:
    """UsageError when the path does not show a format, or its folder is not there."""
    found = format_of(path, format_name)
    if found.NAME == delta.NAME:
        return DeltaOutput(path, overwrite)
    parent = Path(path).absolute().parent
    if not parent.is_dir():
        raise UsageError(f"{path}: there is no directory {parent}")
    return FileOutput(Path(path).absolute(), found)


@dataclass(frozen=True)
class FileOutput:
    """One file, whatever the number of rows."""

    path: Path
    format: Format

    @property
    def name(self) -> str:
        return self.path.name

    def identity(self) -> str:
        return self.format.NAME

    def check_free(self, overwrite: bool) -> None:
        if self.path.exists() and not overwrite:
            raise UsageError(f"{self.name} exists already; --overwrite replaces it")

    def work_path(self, under: Path | None) -> Path:
        return work_folder(under or self.path.parent, self.name)

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], job: str) -> None:
        aside = self.path.with_name(f".{self.name}.assembled")  # where a rename is one step
        self.format.write(str(aside), schema, batches)
        with aside.open("rb") as stream:
            os.fsync(stream.fileno())
        aside.replace(self.path)
        sync_folder(self.path.parent)


@dataclass(frozen=True)
class DeltaOutput:
    """A Delta table: one commit, which carries the job's name so that it is never made twice."""

    path: str
    overwrite: bool

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rsplit("/", 1)[-1]

    def identity(self) -> str:
        return delta.NAME

    def check_free(self, overwrite: bool) -> None:
        if delta.exists(self.path) and not overwrite:
            raise UsageError(f"{self.name} is a table already; --overwrite replaces its rows")

    def work_path(self, under: Path | None) -> Path:
        if under is None and "://" in self.path:
            raise UsageError(
                f"{self.name}: a remote table needs --work-dir, a folder for the parts"
            )
        return work_folder(under or Path(self.path).absolute().parent, self.name)

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], job: str) -> None:
        delta.write(self.path, schema, batches, job=job, overwrite=self.overwrite)


class FrameOutput:
    """Rows kept in memory, for a notebook."""

    def __init__(self, scratch: Path) -> None:
        self.name = "DataFrame"
        self._scratch = scratch
        self.table: pa.Table = pa.table({})

    def identity(self) -> str:
        return "frame"

    def check_free(self, overwrite: bool) -> None:
        """Always free."""

    def work_path(self, under: Path | None) -> Path:
        return work_folder(under or self._scratch, self.name)

    def write(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], job: str) -> None:
        self.table = pa.Table.from_batches(batches, schema)
