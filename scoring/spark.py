"""Scoring on a Spark cluster: `score_spark(df, model_uri, ...)`.

One engine an executor (or one for each GPU that Spark gives a task), shared by all its tasks:
model/executor/ sees to that. Spark itself redoes the partitions of a lost executor, and a row is
in the result once, because only finished tasks count.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import mlflow
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from scoring.answers import ANSWER_SCHEMA
from scoring.job import Job
from scoring.layout import Layout
from scoring.requests import RequestBuilder
from scoring.spark_task import SparkTask
from scoring.targets import ModelTarget

BATCH_ROWS = 1_024
PACKAGE = Path(__file__).resolve().parent


def score_spark(
    df: DataFrame,
    model_uri: str,
    *,
    params: Mapping[str, Any] | None = None,
    json_schema: str | None = None,
    columns: Mapping[str, str] | None = None,
    prompt_template: str | None = None,
    typed: bool = False,
    prefix: str = "",
    batch_rows: int = BATCH_ROWS,
) -> DataFrame:
    """`df` with the answer columns added; lazy, as any DataFrame.

    The options are those of scoring.Job. `batch_rows` rows of a task are in the engine at once.
    Raises UsageError before anything runs when a column, a param or the schema is wrong.
    """
    job = Job(
        model=model_uri,
        params=params or {},
        json_schema=json_schema,
        columns=columns or {},
        prompt_template=prompt_template,
        typed=typed,
        prefix=prefix,
    )
    target = ModelTarget(model_uri, job.all_params)
    carried = pa.schema([(name, pa.null()) for name in df.columns])
    builder = RequestBuilder(carried, target.request_columns, job.columns, job.prompt_template)
    layout = Layout.plan(carried, ANSWER_SCHEMA, prefix, json_schema if typed else None)
    task = SparkTask(
        model_uri=target.uri,
        tracking_uri=mlflow.get_tracking_uri(),
        registry_uri=mlflow.get_registry_uri(),
        params=job.all_params,
        columns=builder.columns,
        prompt_template=prompt_template,
        json_schema=json_schema if typed else None,
        prefix=prefix,
        batch_rows=batch_rows,
    )
    ship(df.sparkSession)
    return df.mapInArrow(task, _spark_schema(df, layout))


def _spark_schema(df: DataFrame, layout: Layout) -> StructType:
    added = pa.schema([layout.schema.field(name) for name in layout.answer_names])
    return StructType([*df.schema.fields, *from_arrow_schema(added).fields])


def ship(spark: SparkSession) -> None:
    """Makes this package importable in the executors; the model's own code comes with the model."""
    if is_remote():
        spark.addArtifact(_archive(), pyfile=True)
    else:  # before Spark 4 only remote sessions had artifacts
        spark.sparkContext.addPyFile(_archive())


@cache
def _archive() -> str:
    """A zip of this package. Spark serves it from here, so it stays as long as this process."""
    scratch = tempfile.mkdtemp(prefix="formline-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return shutil.make_archive(f"{scratch}/{PACKAGE.name}", "zip", PACKAGE.parent, PACKAGE.name)
