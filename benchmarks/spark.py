"""Spark scoring with one executor and with two, each engine pinned to a core of its own.

    python -m benchmarks.spark [--rows 200] [--rounds 3]

One local cluster of two executors with a slot each: a job of one partition keeps one engine busy, a
job of two keeps both. Rounds of the two kinds take turns in one run. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow

from register import register_model
from scoring.spark import score_spark
from scripts.small_model import NAME as SMALL_MODEL
from scripts.small_model import build

ROOT = Path(__file__).resolve().parent.parent
ENGINE_ARGS = {
    "max_model_len": 1024,
    "max_num_seqs": 32,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 512 << 20,
}
PARAMS = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}


@contextmanager
def cluster(rooms: Path) -> Iterator[Any]:
    """Two executors, one slot and one core for the engine each."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.network.timeout": "600s",
        "spark.executorEnv.FORMLINE_EXECUTOR_DIR": str(rooms),
        "spark.executorEnv.FORMLINE_EXECUTOR_CORES": "1",
        "spark.executorEnv.VLLM_LOGGING_LEVEL": "WARNING",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,512]").appName("formline")
    spark = builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def seconds(spark: Any, uri: str, rows: int, partitions: int) -> float:
    """Wall time of scoring `rows` rows in so many partitions."""
    prompts = spark.range(rows).selectExpr("id", "concat('Count from ', id) AS prompt")
    scored = score_spark(prompts.repartition(partitions, "id"), uri, params=PARAMS)
    started = time.monotonic()
    found = len(scored.collect())
    if found != rows:
        raise SystemExit(f"{found} rows came back, not {rows}")
    return time.monotonic() - started


def measure(rows: int, rounds: int, folder: Path) -> dict[str, Any]:
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.create_experiment("spark", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("spark")
    weights = build(ROOT / ".cache" / SMALL_MODEL)
    uri = register_model(weights, "formline-spark", engine_args=ENGINE_ARGS).uri
    rooms = folder / "rooms"
    rooms.mkdir(mode=0o700)
    took: dict[int, list[float]] = {1: [], 2: []}
    with cluster(rooms) as spark:
        seconds(spark, uri, 16, 2)  # both engines start
        for number in range(rounds):
            for partitions in (1, 2):
                took[partitions].append(seconds(spark, uri, rows, partitions))
                print(f"round {number + 1}, {partitions} executors: {took[partitions][-1]:.1f} s")
    one, two = (rows / statistics.median(took[partitions]) for partitions in (1, 2))
    return {
        "benchmark": "spark",
        "rows": rows,
        "rows_per_s_one_executor": round(one, 1),
        "rows_per_s_two_executors": round(two, 1),
        "speedup": round(two / one, 2),
        "engines": len(list(rooms.glob("*/starts"))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="formline-spark-") as scratch:
        figures = measure(given.rows, given.rounds, Path(scratch))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
