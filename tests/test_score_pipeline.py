"""Scoring as a whole, on a fake predictor: every row once, whatever happens on the way."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from benchmarks.fake_target import FakeTarget, fake_answer
from benchmarks.kills import wrong_rows
from scoring.checkpoint import WorkFolder
from scoring.errors import Interrupted, ResumeRefused, TargetError, UsageError
from scoring.job import Job
from scoring.run import Options, score, score_frame

ROOT = Path(__file__).resolve().parent.parent
QUIET = Options(track=False, quiet=True)
SCHEMA = '{"type":"object","properties":{"digest":{"type":"string"},"length":{"type":"integer"}}}'


def job(**changes: Any) -> Job:
    given: dict[str, Any] = {"model": "models:/fake/1", "chunk_rows": 10, "params": {}}
    return Job(**{**given, **changes})


def make_input(path: Path, rows: int) -> Path:
    prompts = [f"fail {i}" if i % 13 == 5 else f"prompt {i}" for i in range(rows)]
    pq.write_table(pa.table({"id": range(rows), "prompt": prompts}), path)
    return path


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(make_input(tmp_path / "in.parquet", 57))


class Stopping(FakeTarget):
    """A fake that fails as a dead engine would after some calls."""

    def __init__(self, calls: int) -> None:
        super().__init__(chunks_at_once=1)
        self.calls = calls

    def answer(self, requests: pd.DataFrame) -> pa.RecordBatch:
        self.calls -= 1
        if self.calls < 0:
            raise TargetError("the engine is gone")
        return super().answer(requests)


def test_rows_come_back_once_in_order_with_their_columns(source: str, tmp_path: Path) -> None:
    result = score(
        source, str(tmp_path / "out.parquet"), job=job(), target=FakeTarget(), options=QUIET
    )
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["id"].to_pylist() == list(range(57))
    for row in table.to_pylist():
        expected = fake_answer(row["prompt"])
        assert row["output"] == expected.get("output")
        assert row["error"] == expected.get("error")
    assert (result.totals.rows, result.totals.errors) == (57, 4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


def test_report_35_the_error_column_is_text_in_every_row_group(tmp_path: Path) -> None:
    """A column of nulls and then strings: the type is known before the first row."""
    pq.write_table(pa.table({"prompt": ["a"] * 20 + ["fail"]}), tmp_path / "in.parquet")
    score(
        str(tmp_path / "in.parquet"),
        str(tmp_path / "out.parquet"),
        job=job(),
        target=FakeTarget(),
        options=QUIET,
    )
    pq.write_table(pa.table({"prompt": ["a"]}), tmp_path / "clean.parquet")
    score(
        str(tmp_path / "clean.parquet"),
        str(tmp_path / "clean-out.parquet"),
        job=job(),
        target=FakeTarget(),
        options=QUIET,
    )
    for name in ("out", "clean-out"):
        assert pq.read_schema(tmp_path / f"{name}.parquet").field("error").type == pa.string()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "delta"])
def test_a_job_resumes_where_it_stopped(source: str, tmp_path: Path, suffix: str) -> None:
    calm, stopped = tmp_path / f"calm.{suffix}", tmp_path / f"stopped.{suffix}"
    wanted = job(params={"temperature": 0}, json_schema=SCHEMA, typed=True)
    score(source, str(calm), job=wanted, target=FakeTarget(), options=QUIET)
    with pytest.raises(TargetError):
        score(source, str(stopped), job=wanted, target=Stopping(3), options=QUIET)
    assert not stopped.exists()
    rest = FakeTarget()
    score(source, str(stopped), job=wanted, target=rest, options=QUIET)
    assert len(rest.asked) == 27  # three chunks of ten were kept
    if suffix == "delta":
        tables = [DeltaTable(path).to_pyarrow_table().sort_by("id") for path in (calm, stopped)]
        assert tables[0].equals(tables[1])
    else:
        assert calm.read_bytes() == stopped.read_bytes()


def start_slow_job(source: str, output: Path) -> subprocess.Popen[bytes]:
    call = [sys.executable, "-m", "benchmarks.scale", "--work", source, str(output)]
    return subprocess.Popen([*call, "--seconds", "0.2", "--chunk-rows", "4"], cwd=ROOT)


def wait_for_parts(folder: Path, parts: int) -> None:
    give_up = time.monotonic() + 120
    while len(list(folder.glob("parts/*/*.arrow"))) < parts:
        assert time.monotonic() < give_up, "no parts appeared"
        time.sleep(0.02)


def test_kill_9_loses_and_doubles_nothing(source: str, tmp_path: Path) -> None:
    output, work = tmp_path / "out.parquet", tmp_path / ".out.parquet.formline"
    wanted = Job(model="models:/fake/1", params={"temperature": 0}, chunk_rows=4)
    for parts in (2, 6):
        process = start_slow_job(source, output)
        wait_for_parts(work, parts)
        process.kill()
        process.wait()
        assert not output.exists()
    kept = len(list(work.glob("parts/*/*.arrow")))
    rest = FakeTarget()
    score(source, str(output), job=wanted, target=rest, options=QUIET)
    assert len(rest.asked) == 57 - 4 * kept
    score(source, str(tmp_path / "calm.parquet"), job=wanted, target=FakeTarget(), options=QUIET)
    assert output.read_bytes() == (tmp_path / "calm.parquet").read_bytes()


@pytest.mark.parametrize(
    ("ids", "wrong"),
    [([0, 1, 2], 0), ([0, 2], 1), ([0, 1, 1, 2], 1), ([0, 1, 2, 7], 1), ([0, 2, 1], 2), ([], 3)],
)
def test_the_benchmark_of_kills_sees_rows_lost_doubled_and_out_of_place(
    ids: list[int], wrong: int
) -> None:
    assert wrong_rows(ids, 3) == wrong


def stop_early(source: str, output: Path, wanted: Job) -> None:
    with pytest.raises(TargetError):
        score(source, str(output), job=wanted, target=Stopping(1), options=QUIET)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"params": {"temperature": 1}}, "settings.params.temperature: 0 -> 1"),
        ({"json_schema": '{"type":"object"}'}, "settings.json_schema: nothing ->"),
        ({"chunk_rows": 11}, "settings.chunk_rows: 10 -> 11"),
        ({"prompt_template": "{{ id }}"}, "settings.prompt_template"),
    ],
)
def test_a_changed_job_is_not_resumed(
    source: str, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    output = tmp_path / "out.parquet"
    stop_early(source, output, job(params={"temperature": 0}))
    changed = job(**{"params": {"temperature": 0}, **changes})
    with pytest.raises(ResumeRefused) as refused:
        score(source, str(output), job=changed, target=FakeTarget(), options=QUIET)
    assert said in refused.value.message
    assert "--restart" in refused.value.message
    restart = Options(track=False, quiet=True, restart=True)
    score(source, str(output), job=changed, target=FakeTarget(), options=restart)
    assert pq.read_table(output)["id"].to_pylist() == list(range(57))


def test_a_changed_input_or_model_is_not_resumed(source: str, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    stop_early(source, output, job())
    with pytest.raises(ResumeRefused, match=r"target\.model"):
        score(source, str(output), job=job(), target=FakeTarget(version="2"), options=QUIET)
    make_input(Path(source), 58)
    with pytest.raises(ResumeRefused, match=r"input\.content"):
        score(source, str(output), job=job(), target=FakeTarget(), options=QUIET)


def test_an_output_that_exists_is_left_alone(source: str, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("precious")
    with pytest.raises(UsageError, match="--overwrite"):
        score(source, str(output), job=job(), target=FakeTarget(), options=QUIET)
    assert output.read_text() == "precious"
    over = Options(track=False, quiet=True, overwrite=True)
    score(source, str(output), job=job(), target=FakeTarget(), options=over)
    assert len(output.read_text().splitlines()) == 57


def test_parts_can_be_kept_elsewhere_and_nothing_else_there_is_touched(
    source: str, tmp_path: Path
) -> None:
    output, elsewhere = tmp_path / "out.parquet", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("precious")
    there = Options(track=False, quiet=True, work_dir=elsewhere)
    with pytest.raises(TargetError):
        score(source, str(output), job=job(), target=Stopping(3), options=there)
    rest = FakeTarget()
    score(source, str(output), job=job(), target=rest, options=there)
    assert len(rest.asked) == 27
    assert [path.name for path in elsewhere.iterdir()] == ["mine.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere", "in.parquet", "out.parquet"]


def test_two_processes_cannot_write_one_output(tmp_path: Path) -> None:
    folder = WorkFolder.open(tmp_path / "work", {"a": 1})
    with pytest.raises(UsageError, match="another process"):
        WorkFolder.open(tmp_path / "work", {"a": 1})
    folder.close()
    WorkFolder.open(tmp_path / "work", {"a": 1}).close()


def test_identical_rows_are_asked_once_at_temperature_0(tmp_path: Path) -> None:
    prompts = [f"prompt {i % 7}" for i in range(40)]
    frame = pd.DataFrame({"prompt": prompts})
    cold, warm = FakeTarget(), FakeTarget()
    answered = score_frame(frame, job=job(params={"temperature": 0}), target=cold, options=QUIET)
    assert sorted(cold.asked, key=str) == sorted(set(prompts))
    assert answered["output"].tolist() == [fake_answer(p)["output"] for p in prompts]
    score_frame(frame, job=job(params={"temperature": 0.1}), target=warm, options=QUIET)
    assert len(warm.asked) == 40
    every = FakeTarget()
    score_frame(
        frame, job=job(params={"temperature": 0}, deduplicate=False), target=every, options=QUIET
    )
    assert len(every.asked) == 40


def test_a_rows_own_temperature_decides_whether_it_is_copied() -> None:
    frame = pd.DataFrame({"prompt": ["a"] * 4, "temperature": [0.0, 0.0, 1.0, 1.0]})
    target = FakeTarget()
    score_frame(frame, job=job(), target=target, options=QUIET)
    assert len(target.asked) == 3


def test_chunks_of_copies_ask_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["same"] * 30}), tmp_path / "in.parquet")
    wanted = job(params={"temperature": 0})
    source, output = str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")

    once = Stopping(1)
    result = score(source, output, job=wanted, target=once, options=QUIET)
    assert (result.totals.copied, once.asked) == (29, ["same"])
    assert result.totals.completion_tokens == 8


def test_passing_faults_are_asked_again_and_lasting_ones_stop_the_job(tmp_path: Path) -> None:
    left = {"busy": 2}

    def answer(prompt: str | None) -> dict[str, Any]:
        if prompt == "busy" and left["busy"] > 0:
            left["busy"] -= 1
            return {"error": "REQUEST_LIMIT_EXCEEDED: the queue is full", "finish_reason": "error"}
        return fake_answer(prompt)

    frame = pd.DataFrame({"prompt": ["a", "busy", "fail"]})
    answered = score_frame(frame, job=job(), target=FakeTarget(answer), options=QUIET)
    assert answered["error"].tolist() == [None, None, "INVALID_ROW: fake"]
    left["busy"] = 10
    with pytest.raises(TargetError, match="REQUEST_LIMIT_EXCEEDED"):
        score_frame(frame, job=job(), target=FakeTarget(answer), options=QUIET)


def test_a_frame_keeps_its_index_and_types() -> None:
    frame = pd.DataFrame({"prompt": ["a", "fail"], "n": [1, 2]}, index=["x", "y"])
    answered = score_frame(frame, job=job(), target=FakeTarget(), options=QUIET)
    assert answered.index.tolist() == ["x", "y"]
    assert answered["n"].dtype == frame["n"].dtype
    assert answered["output"].tolist()[1] is None
    assert answered["prompt_tokens"].tolist() == [1, None]


def test_zero_rows_give_an_empty_output_with_all_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": pa.array([], pa.string())}), tmp_path / "in.parquet")
    out = tmp_path / "out.parquet"
    result = score(
        str(tmp_path / "in.parquet"), str(out), job=job(), target=FakeTarget(), options=QUIET
    )
    assert result.totals.rows == 0
    assert pq.read_schema(out).names[:3] == ["prompt", "output", "finish_reason"]


def test_a_stop_keeps_what_is_finished(source: str, tmp_path: Path) -> None:
    """What Ctrl-C does, without the signal: the event is set while a chunk is in flight."""
    import signal

    class Pressing(FakeTarget):
        def answer(self, requests: pd.DataFrame) -> pa.RecordBatch:
            if len(self.asked) == 20:
                signal.raise_signal(signal.SIGINT)
            return super().answer(requests)

    output = tmp_path / "out.parquet"
    with pytest.raises(Interrupted):
        score(source, str(output), job=job(), target=Pressing(chunks_at_once=1), options=QUIET)
    rest = FakeTarget()
    score(source, str(output), job=job(), target=rest, options=QUIET)
    assert 0 < len(rest.asked) <= 37
    assert pq.read_table(output)["id"].to_pylist() == list(range(57))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"endpoint": "e"}, "either a model"),
        ({"model": None}, "either a model"),
        ({"typed": True}, "--json-schema"),
        ({"json_schema": "{"}, "not valid JSON"),
        ({"json_schema": "[]"}, "JSON object"),
        ({"chunk_rows": 0}, "at least 1"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        job(**wrong)


@pytest.mark.parametrize("suffix", ["parquet", "delta"])
def test_a_kill_after_the_output_is_there_changes_nothing(
    source: str, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run has nothing to ask, writes nothing twice, and still reports every row."""
    output = tmp_path / f"out.{suffix}"
    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "remove", _killed)
        with pytest.raises(KeyboardInterrupt):
            score(source, str(output), job=job(), target=FakeTarget(), options=QUIET)
    again = FakeTarget()
    result = score(source, str(output), job=job(), target=again, options=QUIET)
    assert (again.asked, result.totals.rows) == ([], 57)
    if suffix == "delta":
        assert DeltaTable(output).version() == 0
        assert DeltaTable(output).to_pyarrow_dataset().count_rows() == 57


def test_parts_that_a_kill_left_behind_are_not_taken_for_another_jobs(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it cleaned up: the next job, which asks something else, starts from nothing."""
    output = str(tmp_path / "out.parquet")
    with monkeypatch.context() as patch:
        patch.setattr("scoring.checkpoint.shutil.rmtree", _killed)
        with pytest.raises(KeyboardInterrupt):
            score(source, output, job=job(), target=FakeTarget(), options=QUIET)
    with pytest.raises(UsageError, match="exists already"):
        score(source, output, job=job(), target=FakeTarget(), options=QUIET)
    other = FakeTarget(version="2")
    over = Options(track=False, quiet=True, overwrite=True)
    score(source, output, job=job(), target=other, options=over)
    assert len(other.asked) == 57


def _killed(folder: WorkFolder | Path) -> None:
    raise KeyboardInterrupt
