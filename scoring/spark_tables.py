"""Tables that only Spark sees: `spark:catalog.schema.table` in and out of a job.

Spark does the work and the commit: a lost executor's rows are done again, a job whose driver was
killed starts afresh, and the output table appears when all rows are there.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from scoring.errors import UsageError
from scoring.job import Job
from scoring.session import Options, Result
from scoring.spark import score_spark
from scoring.spark_statistics import statistics_of
from scoring.targets import ModelTarget
from scoring.tracking import Run

SCHEME = "spark:"


def score_table(source: str, output: str, job: Job, options: Options) -> Result:
    """Answers the rows of one table into another. UsageError for what only file jobs can do."""
    _check(output, job)
    target = ModelTarget(str(job.model), job.all_params)
    spark = SparkSession.builder.getOrCreate()
    scored = score_spark(
        _table(spark, source),
        target.uri,
        params=job.params,
        json_schema=job.json_schema,
        columns=job.columns,
        prompt_template=job.prompt_template,
        typed=job.typed,
        prefix=job.prefix,
    )
    name = output.removeprefix(SCHEME)
    if spark.catalog.tableExists(name) and not options.overwrite:
        raise UsageError(f"the table {name} exists already; --overwrite replaces it")
    identity = _identity(source, output, job, target)
    run = Run.begin(identity, f"score {name}", None) if options.track else None
    try:
        seconds = _write(scored, name, options.overwrite)
    except BaseException:
        if run is not None:
            run.stop("FAILED")
        raise
    statistics = statistics_of(spark.table(name), job.prefix, seconds, options.sample)
    if run is not None:
        run.finish(statistics)
    run_id = None if run is None else run.run_id
    return Result(output, statistics.totals, statistics.metrics(), run_id)


def _check(output: str, job: Job) -> None:
    if not output.startswith(SCHEME):
        raise UsageError(f"the answers of a Spark table go to a Spark table: --output {SCHEME}NAME")
    if job.model is None:
        raise UsageError(
            "a Spark table is scored with --model; for an endpoint use ai_query in SQL"
        )
    if job.label is not None:
        raise UsageError("--label works on files; on Spark compare the columns of the output table")


def _table(spark: SparkSession, source: str) -> DataFrame:
    try:
        return spark.table(source.removeprefix(SCHEME))
    except AnalysisException as error:
        raise UsageError(f"{source}: {error.getMessage()}") from error


def _identity(source: str, output: str, job: Job, target: ModelTarget) -> dict[str, Any]:
    return {
        "input": {"table": source.removeprefix(SCHEME)},
        "target": target.identity(),
        "settings": job.shaping(),
        "output": output,
    }


def _write(scored: DataFrame, name: str, overwrite: bool) -> float:
    """Does the work; returns the seconds it took."""
    started = time.monotonic()
    scored.write.mode("overwrite" if overwrite else "error").saveAsTable(name)
    return time.monotonic() - started
