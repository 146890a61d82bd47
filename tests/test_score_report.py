"""A job's MLflow run: what is in it, that a resumed job stays in it, and the evaluation's sums."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks.fake_target import FakeTarget
from scoring.answers import ANSWER_SCHEMA, answer_batch
from scoring.checkpoint import ChunkRecord
from scoring.errors import TargetError, UsageError
from scoring.evaluation import MOST_CLASSES, Evaluation, chosen
from scoring.histogram import Histogram
from scoring.job import Job
from scoring.progress import Lines, Tally, duration
from scoring.run import Options, score
from tests.test_score_pipeline import Stopping, make_input

QUIET = Options(quiet=True)


@pytest.fixture(autouse=True)
def experiment(registry: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test's own experiment in the session's tracking store."""
    place = (tmp_path / "artifacts").as_uri()
    name = f"scoring {request.node.name}"
    number = mlflow.create_experiment(name, artifact_location=place)
    mlflow.set_experiment(experiment_id=number)
    yield number
    mlflow.set_experiment("tests")


@pytest.fixture
def no_tracking_server(registry: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    mlflow.set_tracking_uri("http://127.0.0.1:9")
    yield
    mlflow.set_tracking_uri(registry)


def artifacts(run_id: str, folder: str | None = None) -> set[str]:
    return {item.path for item in mlflow.MlflowClient().list_artifacts(run_id, folder)}


def test_the_run_holds_what_was_done(tmp_path: Path) -> None:
    source = make_input(tmp_path / "in.parquet", 57)
    schema = '{"type":"object"}'
    job = Job(
        model="models:/fake/1",
        params={"temperature": 0},
        json_schema=schema,
        label="id",
        answer_field="length",
        chunk_rows=10,
    )
    result = score(
        str(source), str(tmp_path / "o.parquet"), job=job, target=FakeTarget(), options=QUIET
    )
    assert result.run_id is not None
    run = mlflow.get_run(result.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["model"] == "fake/1"
    assert run.data.params["param.temperature"] == "0"
    assert run.data.metrics["rows"] == 57
    assert run.data.metrics["rows_with_errors"] == 4
    assert run.data.metrics["completion_tokens"] == 53 * 8
    assert 0 <= run.data.metrics["accuracy"] < 1
    assert artifacts(result.run_id) >= {"job.json", "json_schema.json", "sample.json", "plots"}
    plots = {path.removeprefix("plots/") for path in artifacts(result.run_id, "plots")}
    assert plots == {
        "throughput.png",
        "latency.png",
        "tokens.png",
        "outcomes.png",
        "confusion_matrix.png",
        "calibration.png",
    }
    outcomes = mlflow.artifacts.load_dict(f"runs:/{result.run_id}/outcomes.json")
    assert outcomes == {"valid": 53, "INVALID_ROW": 4}
    sample = mlflow.load_table("sample.json", run_ids=[result.run_id])
    assert len(sample) == 50
    assert set(sample["prompt"]) <= set(pd.read_parquet(source)["prompt"])


def test_a_resumed_job_goes_on_in_its_run(tmp_path: Path, experiment: str) -> None:
    source, output = str(make_input(tmp_path / "in.parquet", 57)), str(tmp_path / "o.parquet")
    job = Job(model="models:/fake/1", chunk_rows=10)
    with pytest.raises(TargetError):
        score(source, output, job=job, target=Stopping(2), options=QUIET)
    (first,) = mlflow.MlflowClient().search_runs([experiment])
    assert first.info.status == "FAILED"
    result = score(source, output, job=job, target=FakeTarget(), options=QUIET)
    assert result.run_id == first.info.run_id
    assert mlflow.get_run(result.run_id).info.status == "FINISHED"
    assert result.metrics["rows"] == 57


def test_no_sample_and_no_run_when_not_wanted(tmp_path: Path) -> None:
    source = str(make_input(tmp_path / "in.parquet", 20))
    job = Job(model="models:/fake/1")
    plain = score(
        source,
        str(tmp_path / "a.parquet"),
        job=job,
        target=FakeTarget(),
        options=Options(quiet=True, sample=False),
    )
    assert plain.run_id is not None
    assert "sample.json" not in artifacts(plain.run_id)
    none = score(
        source,
        str(tmp_path / "b.parquet"),
        job=job,
        target=FakeTarget(),
        options=Options(quiet=True, track=False),
    )
    assert none.run_id is None


@pytest.mark.usefixtures("no_tracking_server")
def test_a_tracking_server_that_fails_does_not_cost_the_rows(tmp_path: Path) -> None:
    source, output = make_input(tmp_path / "in.parquet", 20), tmp_path / "o.parquet"
    with pytest.warns(UserWarning, match="MLflow run not written"):
        result = score(
            str(source),
            str(output),
            job=Job(model="models:/fake/1"),
            target=FakeTarget(),
            options=QUIET,
        )
    assert result.run_id is None
    assert output.exists()


def test_a_label_must_be_a_column(tmp_path: Path) -> None:
    source = str(make_input(tmp_path / "in.parquet", 5))
    with pytest.raises(UsageError, match="--label truth"):
        score(
            source,
            str(tmp_path / "o.csv"),
            job=Job(model="models:/fake/1", label="truth"),
            target=FakeTarget(),
            options=QUIET,
        )


def evaluated(
    rows: list[tuple[object, str | None, float | None, dict[str, float] | None]],
) -> Evaluation:
    evaluation = Evaluation("label")
    answers = [
        {
            "output": output,
            "error": None if output else "X: y",
            "logprob": logprob,
            "probabilities": None if shares is None else json.dumps(shares),
        }
        for _, output, logprob, shares in rows
    ]
    evaluation.add([row[0] for row in rows], answer_batch(answers, ANSWER_SCHEMA))
    return evaluation


def test_accuracy_and_confusion() -> None:
    evaluation = evaluated(
        [
            ("yes", '{"grade":"yes"}', None, None),
            ("yes", '{"grade":"no"}', None, None),
            ("no", '{"grade":"no"}', None, None),
            ("no", None, None, None),
            (None, '{"grade":"no"}', None, None),
        ]
    )
    assert evaluation.metrics() == {"labelled_rows": 4, "accuracy": 0.5}
    labels, answers, counts = evaluation.confusion()
    assert (labels, answers) == (["no", "yes"], ["(no answer)", "no", "yes"])
    assert counts.tolist() == [[1, 1, 0], [0, 1, 1]]


def test_calibration_uses_the_chosen_alternatives_probability() -> None:
    evaluation = evaluated(
        [
            ("yes", "yes", -5.0, {"yes": 0.95, "no": 0.05}),
            ("no", "yes", None, {"yes": 0.95, "no": 0.05}),
            ("no", "no", math.log(0.25), None),
        ]
    )
    metrics = evaluation.metrics()
    assert evaluation.calibration() == [(pytest.approx(0.25), 1.0, 1), (0.95, 0.5, 2)]
    assert metrics["expected_calibration_error"] == pytest.approx((0.75 + 2 * 0.45) / 3)
    assert metrics["brier_score"] == pytest.approx((0.05**2 + 0.95**2 + 0.75**2) / 3)


def test_many_classes_do_not_grow_the_confusion_matrix() -> None:
    evaluation = evaluated([(str(i), str(i), None, None) for i in range(500)])
    labels, _, counts = evaluation.confusion()
    assert len(labels) <= MOST_CLASSES + 1
    assert counts.sum() == 500
    assert evaluation.accuracy == 1.0


@pytest.mark.parametrize(
    ("output", "field", "wanted"),
    [
        ("yes", None, "yes"),
        ('"yes"', None, "yes"),
        ('{"a":true}', None, "true"),
        ('{"a":1,"b":2}', "b", "2"),
        ('{"a":{"b":1.0}}', "a/b", "1"),
        ('{"a":1}', "b", None),
        ("text", "b", None),
    ],
)
def test_what_is_compared(output: str, field: str | None, wanted: str | None) -> None:
    assert chosen(output, field) == wanted


def test_a_histogram_counts_everything_and_knows_its_middle() -> None:
    histogram = Histogram(1, 1024)
    histogram.add(range(1, 2001))
    assert histogram.counts.sum() == 2000
    assert histogram.quantile(0.5) == 1024
    assert histogram.mean == pytest.approx(1000.5)
    assert np.all(np.diff(histogram.edges) > 0)


def record(rows: int, errors: int = 0) -> ChunkRecord:
    return ChunkRecord(rows, rows - errors, errors, 0, 10, 20, 0.5, 1.0)


def test_progress_counts_earlier_rows_but_not_their_speed() -> None:
    tally = Tally(total=100)
    tally.add(record(50), fresh=False)
    assert (tally.rows, tally.rows_per_s, tally.eta_s) == (50, 0.0, None)
    tally.add(record(10, errors=2))
    assert (tally.rows, tally.valid, tally.errors, tally.fresh_rows) == (60, 58, 2, 10)
    assert "60 of 100 rows" in tally.line()
    assert "58 valid, 2 errors" in tally.line()
    assert "left" in tally.line()


def test_plain_lines_when_there_is_no_terminal() -> None:
    said: list[str] = []
    lines = Lines(said.append, every_s=1000)
    lines.show(Tally(10))
    assert said == []
    lines.close(Tally(10))
    assert len(said) == 1


def test_durations() -> None:
    assert [duration(s) for s in (5, 65, 3725)] == ["0:05", "1:05", "1:02:05"]


def test_batches_of_answers_have_fixed_types() -> None:
    assert answer_batch([{}], ANSWER_SCHEMA).schema == ANSWER_SCHEMA
    with pytest.raises(TargetError, match="logprob"):
        answer_batch([{"logprob": "high"}], ANSWER_SCHEMA)
    assert pa.types.is_string(ANSWER_SCHEMA.field("error").type)


def test_the_answer_columns_are_the_models() -> None:
    from signature import OUTPUT_COLUMNS

    assert tuple(ANSWER_SCHEMA.names) == OUTPUT_COLUMNS
