"""Scoring on a real local cluster: two executors, the real model, an executor killed on the way."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from typer.testing import CliRunner

import score
from register import Registered, register_model
from scoring.errors import UsageError
from tests.live_endpoint import alive, wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROWS, PARTITIONS = 2_000, 8
PARAMS = {"temperature": 0, "max_tokens": 1}
SHORT_PROMPTS = {"roles": {"system": "{}\n", "user": "{}\n", "assistant": "{}\n"}}


@pytest.fixture(scope="module")
def version(registry: str, small_model_dir: Path, engine_args: dict[str, Any]) -> Registered:
    """A version of its own, whose template adds little to a prompt: 2,000 rows are many here."""
    return register_model(
        small_model_dir, "formline-spark", template=SHORT_PROMPTS, engine_args=engine_args
    )


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where executors and their engines meet; short, for a socket's path is limited."""
    path = tmp_path_factory.mktemp("rooms")
    path.chmod(0o700)
    yield path
    wait_for(lambda: not any(alive(pid) for pid, _ in starts(path)), "the hosts end with Spark")


@pytest.fixture(scope="module")
def spark(rooms: Path, version: Registered) -> Iterator[Any]:
    """Two executors with two slots each: four tasks at once want one engine an executor."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.FORMLINE_EXECUTOR_DIR": str(rooms),
        "spark.executorEnv.FORMLINE_EXECUTOR_CORES": "1",
        "spark.executorEnv.VLLM_LOGGING_LEVEL": "WARNING",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.network.timeout": "600s",
        "spark.sql.warehouse.dir": str(rooms / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
    }
    builder = SparkSession.builder.master("local-cluster[2,2,512]").appName("formline-tests")
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def starts(rooms: Path) -> list[tuple[int, int]]:
    """(host's pid, executor's pid) of every engine that was started."""
    lines = [line for path in rooms.glob("*/starts") for line in path.read_text().splitlines()]
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def kill_an_executor(spark: Any, rooms: Path, killed: list[tuple[int, int]]) -> None:
    """Kills an executor when some partitions are answered, and others are being answered."""
    status = spark.sparkContext.statusTracker()

    def under_way() -> bool:
        stages = map(status.getStageInfo, status.getActiveStageIds())
        return any(s and s.numTasks == PARTITIONS and s.numCompletedTasks for s in stages)

    wait_for(under_way, "a partition is answered", limit_s=1500)
    killed.append(starts(rooms)[0])
    os.kill(killed[0][1], signal.SIGKILL)


def test_2000_rows_with_an_executor_killed_on_the_way(
    spark: Any, rooms: Path, version: Registered
) -> None:
    from scoring.spark import score_spark

    rows = spark.range(ROWS).selectExpr("id", "concat('Say ', id) AS prompt")
    scored = score_spark(rows.repartition(PARTITIONS), version.uri, params=PARAMS)
    killed: list[tuple[int, int]] = []
    killer = threading.Thread(target=kill_an_executor, args=(spark, rooms, killed))
    killer.start()
    answers = scored.collect()
    killer.join()
    assert sorted(row["id"] for row in answers) == list(range(ROWS))
    assert all(row["error"] is None or row["error"] == "truncated" for row in answers)
    assert all(row["completion_tokens"] == 1 for row in answers)
    ((host, executor),) = killed
    wait_for(lambda: not alive(host), "the dead executor's engine ends too")
    executors = [started_for for _, started_for in starts(rooms)]
    assert len(executors) == len(set(executors)), "an executor started two engines"
    assert executor in executors


def test_plain_spark_udf_shares_the_engines(spark: Any, rooms: Path, version: Registered) -> None:
    from pyspark.sql.functions import struct

    before = starts(rooms)
    predict = mlflow.pyfunc.spark_udf(spark, version.uri, env_manager="local", params=PARAMS)
    rows = spark.range(40).selectExpr("concat('Say ', id) AS prompt").repartition(4)
    answers = rows.withColumn("answer", predict(struct("prompt"))).collect()
    assert len(answers) == 40
    assert all(row["answer"]["completion_tokens"] == 1 for row in answers)
    new = set(starts(rooms)) - set(before)
    assert {executor for _, executor in new}.isdisjoint({executor for _, executor in before})


def test_typed_answers_are_structs(spark: Any, version: Registered) -> None:
    from scoring.spark import score_spark

    schema = '{"type":"object","properties":{"n":{"enum":[1,2]}},"required":["n"]}'
    rows = spark.createDataFrame([(1, "one"), (2, "two")], "id int, text string").repartition(1)
    scored = score_spark(
        rows,
        version.uri,
        params={"temperature": 0, "max_tokens": 32},
        json_schema=schema,
        prompt_template="Say {{ text }}.",
        typed=True,
    )
    assert scored.schema["parsed"].dataType.simpleString() == "struct<n:bigint>"
    assert {row["parsed"]["n"] for row in scored.collect()} <= {1, 2}


def test_the_command_scores_a_table_into_a_table(
    spark: Any, version: Registered, tmp_path: Path
) -> None:
    place = (tmp_path / "answers").as_uri()
    spark.range(6).selectExpr("concat('Say ', id) AS prompt").createOrReplaceTempView("questions")
    spark.sql(f"CREATE TABLE answers (prompt STRING) USING parquet LOCATION '{place}'")
    command = ["spark:questions", "--output", "spark:answers", "--model", version.uri]
    refused = CliRunner().invoke(score.app, [*command, "--max-tokens", "1"])
    assert refused.exit_code == 2, refused.output
    assert "exists already" in refused.output
    spark.sql("DROP TABLE answers")
    params = ["--max-tokens", "4", "--choice", '["a", "b"]', "--temperature", "0"]
    done = CliRunner().invoke(score.app, [*command, *params])
    assert done.exit_code == 0, done.output
    assert {row["output"] for row in spark.table("answers").collect()} <= {"a", "b"}
    assert spark.table("answers").count() == 6
    spark.sql("DROP TABLE answers")
    (run,) = mlflow.search_runs(
        filter_string="run_name = 'score answers'", output_format="list", max_results=1
    )
    assert (run.info.status, run.data.metrics["rows_valid"]) == ("FINISHED", 6.0)
    assert run.data.params["model"] == version.uri
    plots = mlflow.MlflowClient().list_artifacts(run.info.run_id, "plots")
    assert [Path(plot.path).name for plot in plots] == ["outcomes.png", "tokens.png"]


def test_wrong_names_are_refused_before_anything_runs(spark: Any, version: Registered) -> None:
    from scoring.spark import score_spark

    rows = spark.range(1).selectExpr("'a' AS prompt")
    with pytest.raises(UsageError, match="did you mean temperature"):
        score_spark(rows, version.uri, params={"Temperature": 0})
    with pytest.raises(UsageError, match="no column"):
        score_spark(rows, version.uri, columns={"prompt": "text"})
