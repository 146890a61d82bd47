"""The work folder of an unfinished job: one part file for each finished chunk.

A part appears under its name only when it is whole and on the disk (written aside, synced,
renamed), so a job killed at any moment leaves nothing to repair. One process owns the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

import pyarrow as pa

from scoring.errors import ResumeRefused, UsageError
from scoring.fingerprint import differences

PARTS_A_FOLDER = 1_000
PARTS_HELD_OPEN = 16
_RECORD = b"formline.chunk"


@dataclass(frozen=True)
class ChunkRecord:
    """How one chunk went. `seconds` is the time its rows took, `at_s` when it ended in the job."""

    rows: int
    answered: int
    errors: int
    copied: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    at_s: float


class WorkFolder:
    """Parts and settings of one job. Open it with `WorkFolder.open`."""

    def __init__(self, path: Path, lock: TextIO) -> None:
        self.path = path
        self._lock = lock
        self._reading = Lock()
        self._open_parts: OrderedDict[int, pa.RecordBatch] = OrderedDict()
        self.done = {int(part.stem) for part in path.glob("parts/*/*.arrow")}

    @classmethod
    def open(cls, path: Path, job: Mapping[str, Any], restart: bool = False) -> WorkFolder:
        """Starts the job's folder, or continues it.

        Raises ResumeRefused when it holds another job, UsageError when a process is at work in it.
        """
        path.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
        settings = path / "job.json"
        if restart or not settings.exists():
            _empty(path)  # parts without settings: what a kill left of a job that was done
        if settings.exists():
            changed = differences(json.loads(settings.read_text(encoding="utf-8")), job)
            if changed:
                lock.close()
                raise ResumeRefused(changed, path.name)
        else:
            write_whole(settings, json.dumps(job, ensure_ascii=False, indent=1))
        return cls(path, lock)

    @property
    def resumed(self) -> bool:
        return bool(self.done)

    def note(self, name: str) -> str | None:
        """A text kept beside the parts, or None."""
        path = self.path / f"{name}.txt"
        return path.read_text(encoding="utf-8") if path.exists() else None

    def keep_note(self, name: str, text: str) -> None:
        write_whole(self.path / f"{name}.txt", text)

    def write_part(self, chunk: int, batch: pa.RecordBatch, record: ChunkRecord) -> None:
        """Makes the chunk finished; after this no kill can lose it."""
        target = self._part(chunk)
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_suffix(".tmp")
        details = {**(batch.schema.metadata or {}), _RECORD: json.dumps(asdict(record)).encode()}
        with aside.open("wb") as stream:
            schema = batch.schema.with_metadata(details)
            with pa.ipc.new_file(stream, schema) as writer:
                writer.write_batch(batch.replace_schema_metadata(details))
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(target)

    def read_part(self, chunk: int) -> pa.RecordBatch:
        """A finished chunk's rows, mapped from the disk; the last few stay open."""
        with self._reading:
            if chunk in self._open_parts:
                self._open_parts.move_to_end(chunk)
                return self._open_parts[chunk]
            batch = self._load(chunk)
            self._open_parts[chunk] = batch
            while len(self._open_parts) > PARTS_HELD_OPEN:
                self._open_parts.popitem(last=False)
            return batch

    def parts(self, chunks: int) -> Iterator[tuple[ChunkRecord, pa.RecordBatch]]:
        """All parts in order, one in memory at a time."""
        for chunk in range(chunks):
            batch = self._load(chunk)
            yield _record(batch), batch

    def records(self) -> list[ChunkRecord]:
        """The records of the chunks finished so far, in order."""
        return [_record(self._load(chunk)) for chunk in sorted(self.done)]

    def remove(self) -> None:
        """Drops the folder: its job is done. Without its settings no later job takes its parts."""
        self._open_parts.clear()
        (self.path / "job.json").unlink()
        shutil.rmtree(self.path)
        self._lock.close()

    def close(self) -> None:
        self._open_parts.clear()
        self._lock.close()

    def _part(self, chunk: int) -> Path:
        return self.path / "parts" / f"{chunk // PARTS_A_FOLDER:06}" / f"{chunk:09}.arrow"

    def _load(self, chunk: int) -> pa.RecordBatch:
        with pa.memory_map(str(self._part(chunk))) as source:
            return pa.ipc.open_file(source).get_batch(0)


def _record(batch: pa.RecordBatch) -> ChunkRecord:
    return ChunkRecord(**json.loads(batch.schema.metadata[_RECORD]))


def _locked(path: Path) -> TextIO:
    lock = (path / "lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise UsageError("another process is writing this output right now") from error
    return lock


def _empty(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "lock":
            entry.unlink()


def write_whole(path: Path, text: str) -> None:
    """The file with this text, or as it was before; never half of it."""
    aside = path.with_name(path.name + ".tmp")
    with aside.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)


def sync_folder(path: Path) -> None:
    """Makes renames inside `path` last."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
