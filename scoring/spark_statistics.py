"""What a table of answers says of its job, counted by Spark; only counts come to the driver."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from scoring.statistics import SAMPLE_ROWS, Statistics, Totals

LENGTHS = ("prompt_tokens", "completion_tokens")


def statistics_of(table: DataFrame, prefix: str, seconds: float, sample: bool) -> Statistics:
    """The statistics a file job gathers chunk by chunk, but for the chunks' own times."""
    statistics = Statistics(totals=_totals(table, prefix, seconds))
    code = fn.trim(fn.substring_index(_answers(prefix, "error"), ":", 1))
    for row in table.groupBy(fn.coalesce(code, fn.lit("valid")).alias("code")).count().collect():
        statistics.count_outcome(row["code"], row["count"])
    for name in LENGTHS:
        column = _answers(prefix, name)
        lengths = table.where(column.isNotNull()).groupBy(column).count().collect()
        histogram = getattr(statistics, name)
        histogram.add([row[0] for row in lengths], [row[1] for row in lengths])
    if sample:
        rows = table.limit(SAMPLE_ROWS).collect()
        statistics.sample = [row.asDict(recursive=True) for row in rows]
    return statistics


def _totals(table: DataFrame, prefix: str, seconds: float) -> Totals:
    row = table.agg(
        fn.count(fn.lit(1)).alias("rows"),
        fn.count(_answers(prefix, "error")).alias("errors"),
        *[fn.coalesce(fn.sum(_answers(prefix, name)), fn.lit(0)).alias(name) for name in LENGTHS],
    ).collect()[0]
    counts = {name: int(count) for name, count in row.asDict().items()}
    return Totals(answered=counts["rows"] - counts["errors"], seconds=seconds, **counts)


def _answers(prefix: str, name: str) -> Column:
    return fn.col(f"`{prefix}{name}`")
