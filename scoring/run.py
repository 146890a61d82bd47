"""Runs a job: opens everything, answers, assembles, reports. The functions notebooks call."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pandas as pd
import pyarrow as pa

from scoring.checkpoint import WorkFolder
from scoring.duplicates import Owners
from scoring.errors import Interrupted
from scoring.evaluation import Evaluation, check_label
from scoring.fingerprint import FORMAT_VERSION
from scoring.job import Job
from scoring.layout import Layout
from scoring.outputs import FrameOutput, Output, open_output
from scoring.pipeline import Pipeline
from scoring.progress import Reporter, Tally, View, view
from scoring.requests import RequestBuilder
from scoring.sources import FileSource, FrameSource, Source
from scoring.statistics import Statistics, Totals
from scoring.stopping import stop_on_interrupt
from scoring.targets import ModelTarget, Target
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


DEFAULTS = Options()


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


def score(
    source: str | pd.DataFrame,
    output: str,
    *,
    job: Job,
    target: Target | None = None,
    input_format: str | None = None,
    output_format: str | None = None,
    options: Options = DEFAULTS,
) -> Result:
    """Answers every row of `source` (a path, spark:TABLE or a DataFrame) into `output`.

    Continues the unfinished job it finds beside the output. Raises UsageError before anything is
    scored, TargetError when the model or endpoint gives up, Interrupted on Ctrl-C.
    """
    if isinstance(source, str) and source.startswith("spark:"):
        from scoring.spark_tables import score_table

        totals = score_table(source, output, job, overwrite=options.overwrite)
        return Result(output, totals, {}, None)
    place = open_output(output, output_format, options.overwrite)
    return _run(_source(source, input_format), place, job, target, options)


def score_frame(
    frame: pd.DataFrame,
    *,
    job: Job,
    target: Target | None = None,
    options: Options = DEFAULTS,
) -> pd.DataFrame:
    """The DataFrame's columns, index and dtypes as they were, with the answer columns added."""
    with tempfile.TemporaryDirectory(prefix="formline-score-") as scratch:
        output = FrameOutput(Path(scratch) / "work")
        _run(FrameSource(frame), output, job, target, options)
        added = [name for name in output.table.column_names if name not in frame.columns]
        table = output.table.select(added)
    answers = {name: pd.Series(table[name].to_pylist(), frame.index, object) for name in added}
    return frame.assign(**answers)


def _source(source: str | pd.DataFrame, format_name: str | None) -> Source:
    if isinstance(source, pd.DataFrame):
        return FrameSource(source)
    return FileSource.open(source, format_name)


def open_target(job: Job) -> Target:
    """The model version or endpoint that the job names."""
    if job.model is not None:
        return ModelTarget(job.model, job.all_params)
    from scoring.endpoint import EndpointTarget
    from signature import INPUT_COLUMNS, PARAM_DEFAULTS

    return EndpointTarget(
        str(job.endpoint),
        job.all_params,
        request_columns=INPUT_COLUMNS,
        known_params=list(PARAM_DEFAULTS),
    )


def _run(
    source: Source, output: Output, job: Job, given: Target | None, options: Options
) -> Result:
    check_label(job.label, job.answer_field, source.schema.names)
    target = given or open_target(job)
    builder = RequestBuilder(
        source.schema, target.request_columns, job.columns, job.prompt_template
    )
    layout = Layout.plan(
        source.schema, target.answer_schema, job.prefix, job.json_schema if job.typed else None
    )
    identity = _identity(source, output, job, target)
    with ExitStack() as stack:
        stack.callback(target.close)
        folder = _folder(output, identity, options)
        stack.callback(folder.close)
        session = _Session(source, output, job, target, builder, layout, folder, options, identity)
        return session.run()


def _identity(source: Source, output: Output, job: Job, target: Target) -> dict[str, Any]:
    """What the job is, as JSON: compared before an unfinished one is continued."""
    identity = {
        "format_version": FORMAT_VERSION,
        "input": source.identity(),
        "columns": {field.name: str(field.type) for field in source.schema},
        "target": target.identity(),
        "settings": job.shaping(),
        "output": output.identity(),
    }
    return dict(json.loads(json.dumps(identity, default=str)))


def _folder(output: Output, identity: dict[str, Any], options: Options) -> WorkFolder:
    path = options.work_dir or output.work_path()
    if options.restart or not (path / "job.json").exists():
        output.check_free(options.overwrite)
    return WorkFolder.open(path, identity, options.restart)


@dataclass(frozen=True)
class _Session:
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
            run = Run.begin(self.folder, self.identity, f"score {self.output.name}")
        try:
            chunks = self._answer(run)
            statistics = self._assemble(chunks)
        except BaseException as error:
            if run is not None:
                run.stop(
                    "KILLED" if isinstance(error, Interrupted | KeyboardInterrupt) else "FAILED"
                )
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
        self.output.write(schema, batches(), _job_name(self.identity, self.folder))
        return statistics


def _close(shown: View, tally: Tally, owners: Owners | None) -> None:
    shown.close(tally)
    if owners is not None:
        owners.close()


def _job_name(identity: dict[str, Any], folder: WorkFolder) -> str:
    """Names this job and no other: two jobs that ask the same are still two."""
    name = folder.note("job_name")
    if name is None:
        name = uuid.uuid4().hex
        folder.keep_note("job_name", name)
    return name
