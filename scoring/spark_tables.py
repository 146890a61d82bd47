"""Tables that only Spark sees: `spark:catalog.schema.table` in and out of a job.

Spark does the work and the commit: a lost executor's rows are done again, a job whose driver was
killed starts afresh, and the output table appears when all rows are there.
"""

from __future__ import annotations

import time

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from scoring.errors import UsageError
from scoring.job import Job
from scoring.spark import score_spark
from scoring.statistics import Totals

SCHEME = "spark:"


def score_table(source: str, output: str, job: Job, *, overwrite: bool) -> Totals:
    """Answers the rows of one table into another. UsageError for what only file jobs can do."""
    _check(output, job)
    started = time.monotonic()
    spark = SparkSession.builder.getOrCreate()
    scored = score_spark(
        _table(spark, source),
        str(job.model),
        params=job.params,
        json_schema=job.json_schema,
        columns=job.columns,
        prompt_template=job.prompt_template,
        typed=job.typed,
        prefix=job.prefix,
    )
    name = output.removeprefix(SCHEME)
    if spark.catalog.tableExists(name) and not overwrite:
        raise UsageError(f"the table {name} exists already; --overwrite replaces it")
    scored.write.mode("overwrite" if overwrite else "error").saveAsTable(name)
    return _totals(spark.table(name), job.prefix, time.monotonic() - started)


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


def _totals(table: DataFrame, prefix: str, seconds: float) -> Totals:
    row = table.agg(
        fn.count(fn.lit(1)).alias("rows"),
        fn.count(f"{prefix}error").alias("errors"),
        fn.coalesce(fn.sum(f"{prefix}prompt_tokens"), fn.lit(0)).alias("prompt_tokens"),
        fn.coalesce(fn.sum(f"{prefix}completion_tokens"), fn.lit(0)).alias("completion_tokens"),
    ).collect()[0]
    counts = {name: int(count) for name, count in row.asDict().items()}
    return Totals(answered=counts["rows"] - counts["errors"], seconds=seconds, **counts)
