"""The flow of one job: chunks in order, a few being answered at once, each kept when finished."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from typing import Protocol

import pyarrow as pa

from scoring.asking import Asker
from scoring.checkpoint import ChunkRecord, WorkFolder
from scoring.chunks import Chunk, cut
from scoring.duplicates import Owner, Owners
from scoring.errors import Interrupted, TargetError
from scoring.layout import Layout
from scoring.requests import RequestBuilder, Requests
from scoring.sources import Source
from scoring.targets import Target

KEPT = "stopped; the rows finished so far are kept"


class Progress(Protocol):
    """What wants to know of finished chunks."""

    def add(self, record: ChunkRecord) -> None: ...


@dataclass(frozen=True)
class Pipeline:
    """Everything one job needs, chosen and checked. `run` answers what is not answered yet."""

    source: Source
    builder: RequestBuilder
    target: Target
    layout: Layout
    folder: WorkFolder
    owners: Owners | None
    chunk_rows: int
    row_retries: int
    progress: Progress
    stop: Event
    spent_s: float  # in earlier runs of the same job

    def run(self) -> int:
        """Answers all chunks; returns their number. Raises Interrupted when `stop` was set."""
        running = _Running(self)
        started = time.monotonic() - self.spent_s
        chunks = 0
        with ThreadPoolExecutor(self.target.chunks_at_once) as pool:
            try:
                for chunk in self._chunks():
                    chunks += 1
                    requests = self.builder.build(chunk.table)
                    owners = self.owners.find(chunk.index, requests) if self.owners else {}
                    if chunk.index not in self.folder.done:
                        running.wait_below(self.target.chunks_at_once)
                        work = pool.submit(self._answer, running, chunk, requests, owners, started)
                        running.add(chunk.index, work)
                running.wait_below(1)
            except TargetError as error:
                if self.stop.is_set():  # Ctrl-C reaches the engine too: its end is no fault
                    raise Interrupted(KEPT) from error
                raise
        if self.stop.is_set():
            raise Interrupted(KEPT)
        return chunks

    def _chunks(self) -> Iterator[Chunk]:
        for chunk in cut(self.source.batches(), self.source.schema, self.chunk_rows):
            if self.stop.is_set():
                return
            yield chunk

    def _answer(
        self,
        running: _Running,
        chunk: Chunk,
        requests: Requests,
        owners: dict[int, Owner],
        started: float,
    ) -> None:
        begun = time.monotonic()
        asker = Asker(self.target, self.row_retries, running.answers_of)
        batch = self.layout.join(chunk.table, asker.ask(chunk.index, requests, owners))
        ended = time.monotonic()
        answers = self.layout.answers_in(batch)
        record = _record(answers, owners, ended - begun, ended - started)
        self.folder.write_part(chunk.index, batch, record)
        self.progress.add(record)


class _Running:
    """The chunks being answered now."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._work: dict[int, Future[None]] = {}

    def add(self, chunk: int, work: Future[None]) -> None:
        self._work[chunk] = work

    def wait_below(self, most: int) -> None:
        """Until fewer than `most` are being answered; raises what any of them raised."""
        while len(self._work) >= most:
            done, _ = wait(self._work.values(), return_when=FIRST_COMPLETED)
            for chunk in [chunk for chunk, work in self._work.items() if work in done]:
                self._work[chunk].result()
                del self._work[chunk]

    def answers_of(self, chunk: int) -> pa.RecordBatch:
        """An earlier chunk's answers. It was begun earlier, so waiting for it cannot lock."""
        work = self._work.get(chunk)
        if work is not None:
            work.result()
        folder, layout = self._pipeline.folder, self._pipeline.layout
        return layout.answers_in(folder.read_part(chunk))


def _record(
    answers: pa.RecordBatch, owners: Mapping[int, Owner], seconds: float, at_s: float
) -> ChunkRecord:
    """Tokens are those of the rows that were asked; a copy costs none."""
    errors = answers.column("error").to_pylist()
    rows = [row for row in range(answers.num_rows) if row not in owners]
    asked = answers.take(pa.array(rows, pa.int64()))
    return ChunkRecord(
        rows=answers.num_rows,
        answered=errors.count(None),
        errors=len(errors) - errors.count(None),
        copied=len(owners),
        prompt_tokens=_total(asked.column("prompt_tokens")),
        completion_tokens=_total(asked.column("completion_tokens")),
        seconds=seconds,
        at_s=at_s,
    )


def _total(counts: pa.Array) -> int:
    return sum(count for count in counts.to_pylist() if count is not None)
