"""Runs a job: opens everything, then a session. The functions notebooks call."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd

from scoring.checkpoint import WorkFolder
from scoring.evaluation import check_label
from scoring.fingerprint import FORMAT_VERSION
from scoring.job import Job
from scoring.layout import Layout
from scoring.outputs import FrameOutput, Output, open_output
from scoring.requests import RequestBuilder
from scoring.session import Options, Result, Session
from scoring.sources import FileSource, FrameSource, Source
from scoring.targets import ModelTarget, Target

__all__ = ["Options", "Result", "open_target", "score", "score_frame"]

DEFAULTS = Options()


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

        return score_table(source, output, job, options)
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
        output = FrameOutput(Path(scratch))
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
        session = Session(source, output, job, target, builder, layout, folder, options, identity)
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
    path = output.work_path(options.work_dir)
    if options.restart or not (path / "job.json").exists():
        output.check_free(options.overwrite)
    return WorkFolder.open(path, identity, options.restart)
