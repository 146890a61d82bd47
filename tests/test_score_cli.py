"""The command: options, exit codes, what it says, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel
from typer.testing import CliRunner, Result

import score
from benchmarks.fake_target import fake_answer
from scoring import endpoint as endpoint_module
from scoring.errors import UsageError
from scoring.options import extra_params, pairs, read_schema, schema_of
from tests.faulty_endpoint import error, faulty_endpoint

ROOT = Path(__file__).resolve().parent.parent


class Grade(BaseModel):
    grade: str


def call(*arguments: str) -> Result:
    return CliRunner().invoke(score.app, [*arguments, "--no-track", "--quiet"])


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "in.csv"
    path.write_text("id,question\n1,a\n2,b\n3,c\n")
    return str(path)


def test_all_rows_answered_is_0_and_params_reach_the_endpoint(rows: str, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    with faulty_endpoint() as endpoint:
        result = call(
            *(rows, "--output", str(out), "--endpoint", endpoint.url, "--map", "prompt=question"),
            *("--pydantic", "tests.test_score_cli:Grade", "--temperature", "0", "--stop=;"),
        )
    assert result.exit_code == 0, result.output
    assert "3 rows: 3 valid, 0 with errors" in result.output
    assert pq.read_table(out)["output"].to_pylist() == [fake_answer(p)["output"] for p in "abc"]
    schema = endpoint.params[0].pop("json_schema")
    assert json.loads(schema) == {**Grade.model_json_schema(), "additionalProperties": False}
    assert endpoint.params[0] == {"temperature": 0, "stop": ";"}


def test_row_errors_are_3_and_the_other_rows_are_there(rows: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    template = "{% if id == '2' %}fail{% else %}{{ question }}{% endif %}"
    with faulty_endpoint() as endpoint:
        result = call(
            *(rows, "--output", str(out), "--endpoint", endpoint.url),
            *("--prompt-template", template),
        )
    assert result.exit_code == 3, result.output
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [a["error"] is None for a in answers] == [True, False, True]
    assert [a["id"] for a in answers] == ["1", "2", "3"]


def test_a_failure_is_1_and_says_how_to_go_on(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "RETRY_REFUSED_S", 0.05)
    arguments = (rows, "--output", str(tmp_path / "o.csv"), "--map", "prompt=question")
    with faulty_endpoint(fault_of=lambda _: error(503, "GONE", "away")) as endpoint:
        result = call(*arguments, "--endpoint", endpoint.url)
    assert result.exit_code == 1
    assert "run the same command" in result.output
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name either a model"),
        (("--endpoint", "http://x", "--model", "models:/a/1"), "not both"),
        (("--endpoint", "http://x/y", "--Temperature", "0"), "did you mean temperature"),
        (("--endpoint", "http://x/y"), "--map prompt="),
        (("--endpoint", "http://x/y", "--map", "prompt"), "REQUEST_COLUMN=INPUT_COLUMN"),
        (("--endpoint", "http://x/y", "--max-tokens"), "needs a value"),
        (("--endpoint", "http://x/y", "--pydantic", "nowhere:X"), "No module named"),
        (("--endpoint", "http://x/y", "--json-schema", "{"), "not valid JSON"),
        (("--endpoint", "http://x/y", "--typed"), "--json-schema or --pydantic"),
        (("--model", "models:/nothing-of-that-name/1"), "nothing-of-that-name"),
    ],
)
@pytest.mark.usefixtures("registry")
def test_usage_errors_are_2(
    rows: str, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = call(rows, "--output", str(tmp_path / "o.parquet"), *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_ctrl_c_keeps_the_rows_and_the_same_command_goes_on(tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("prompt\n" + "".join(f"p {i}\n" for i in range(40)))

    def slow(_: Any) -> None:
        time.sleep(0.1)

    with faulty_endpoint(fault_of=slow) as endpoint:
        command = [
            *(sys.executable, "score.py", str(source), "--output", str(output)),
            *("--endpoint", endpoint.url, "--chunk-rows", "2", "--no-track"),
        ]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        while len(endpoint.calls) < 3:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 1
        assert "run the same command to go on" in said
        assert not output.exists()
        before = len(endpoint.calls)
        again = subprocess.run(command, cwd=ROOT, check=False, timeout=240)
        assert again.returncode == 0
        assert before + len(endpoint.calls[before:]) == 20
    assert len(output.read_text().splitlines()) == 41


def test_options_as_values() -> None:
    assert extra_params(["--max-tokens", "64", "--stop=;", "--ignore-eos", "true"]) == {
        "max_tokens": 64,
        "stop": ";",
        "ignore_eos": True,
    }
    assert extra_params(["--choice", '["a", "b"]', "--seed=7"]) == {
        "choice": '["a", "b"]',
        "seed": 7,
    }
    assert pairs(["a=b=c"]) == {"a": "b=c"}
    with pytest.raises(UsageError, match="unexpected argument"):
        extra_params(["stray"])


def test_schemas_from_files_and_types(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type":"integer"}')
    assert read_schema(str(tmp_path / "s.json"), None) == '{"type":"integer"}'
    assert read_schema('{"type":"string"}', None) == '{"type":"string"}'
    assert json.loads(schema_of("builtins:int")) == {"type": "integer"}
    for wrong in ("nomodule", "json:nothing", "threading:Lock"):
        with pytest.raises(UsageError, match="--pydantic"):
            schema_of(wrong)
    with pytest.raises(UsageError, match="not both"):
        read_schema("{}", "a:b")
