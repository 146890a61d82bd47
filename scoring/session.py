"""One run of an opened job: answer what is not answered yet, assemble the output, report."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa

from scoring.checkpoint import WorkFolder
from scoring.duplicates import Owners
from scoring.errors import Interrupted
from scoring.evaluation import Evaluation
from scoring.job import Job
from scoring.layout import Layout
from scoring.outputs import Output
from scoring.pipeline import Pipeline
from scoring.progress import Reporter, Tally, View, view
from scoring.requests import RequestBuilder
from scoring.sources import Source
from scoring.statistics import Statistics, Totals
from scoring.stopping import stop_on_interrupt
from scoring.targets import Target
from scoring.tracking import Run


@dataclass(frozen=True)
class Options:
    """How a job is run; none of these changes its output."""

    overwrite: bool = False
    restart: bool = False
    track: bool = True
    sample: bool = True
    quiet: bool = False
    work_dir: Path | None = None


@dataclass(frozen=True)
class Result:
    """What a finished job did. `run_id` is its MLflow run, `metrics` what was logged there."""

    output: str
    totals: Totals
    metrics: dict[str, float]
    run_id: str | None

    def summary(self) -> str:
        t = self.totals
        copied = f" ({t.copied:,} copied from identical rows)" if t.copied else ""
        return (
            f"{t.rows:,} rows: {t.answered:,} valid, {t.errors:,} with errors{copied}; "
            f"{t.completion_tokens:,} tokens in {t.seconds:,.1f} s -> {self.output}"
        )


@dataclass(frozen=True)
class Session:
    """One run of an opened job."""

    source: Source
    output: Output
    job: Job
    target: Target
    builder: RequestBuilder
    layout: Layout
    folder: WorkFolder
    options: Options
    identity: dict[str, Any]

    def run(self) -> Result:
        run = None
        if self.options.track:
            run = Run.begin(self.identity, f"score {self.output.name}", self.folder)
        try:
            chunks = self._answer(run)
            statistics = self._assemble(chunks)
        except BaseException as error:
            if run is not None:
                stopped = isinstance(error, Interrupted | KeyboardInterrupt)
                run.stop("KILLED" if stopped else "FAILED")
            raise
        if run is not None:
            run.finish(statistics)
        self.folder.remove()
        run_id = None if run is None else run.run_id
        return Result(self.output.name, statistics.totals, statistics.metrics(), run_id)

    def _answer(self, run: Run | None) -> int:
        self.target.start()
        before = self.folder.records()
        tally = Tally(self.source.rows())
        for record in before:
            tally.add(record, fresh=False)
        shown = view(tally.total, self.options.quiet)
        listeners = [shown.show, *([run.live] if run is not None else [])]
        owners = self._owners()
        try:
            with stop_on_interrupt() as stop:
                spent = max((record.at_s for record in before), default=0.0)
                pipeline = self._pipeline(owners, Reporter(tally, listeners), stop, spent)
                return pipeline.run()
        finally:
            _close(shown, tally, owners)

    def _owners(self) -> Owners | None:
        if not self.job.deduplicate:
            return None
        return Owners(self.folder.path / "owners.sqlite", self.job.params)

    def _pipeline(
        self, owners: Owners | None, progress: Reporter, stop: Event, spent_s: float
    ) -> Pipeline:
        return Pipeline(
            source=self.source,
            builder=self.builder,
            target=self.target,
            layout=self.layout,
            folder=self.folder,
            owners=owners,
            chunk_rows=self.job.chunk_rows,
            row_retries=self.job.row_retries,
            progress=progress,
            stop=stop,
            spent_s=spent_s,
        )

    def _assemble(self, chunks: int) -> Statistics:
        """Writes the output from the parts, and gathers the report on the way."""
        label = self.job.label
        evaluation = None if label is None else Evaluation(label, self.job.answer_field)
        statistics = Statistics(evaluation, self.options.sample)

        def batches() -> Iterator[pa.RecordBatch]:
            for record, batch in self.folder.parts(chunks):
                statistics.add(record, batch, self.layout.answers_in(batch))
                yield batch.replace_schema_metadata(None)

        schema = self.layout.schema
        self.output.write(schema, batches(), _job_name(self.folder))
        if not statistics.totals.rows:  # a Delta commit made before a kill: nothing was read
            deque(batches(), maxlen=0)
        return statistics


def _close(shown: View, tally: Tally, owners: Owners | None) -> None:
    shown.close(tally)
    if owners is not None:
        owners.close()


def _job_name(folder: WorkFolder) -> str:
    """Names this job and no other: two jobs that ask the same are still two."""
    name = folder.note("job_name")
    if name is None:
        name = uuid.uuid4().hex
        folder.keep_note("job_name", name)
    return name
