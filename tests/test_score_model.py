"""Scoring with the real model: in this process, and behind the real scoring server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import score
from register import Registered
from scoring.endpoint import EndpointTarget
from scoring.job import Job
from scoring.run import Options
from signature import INPUT_COLUMNS, PARAM_DEFAULTS

pytestmark = pytest.mark.engine

GRADE = json.dumps(
    {
        "type": "object",
        "properties": {"grade": {"enum": ["yes", "no"]}, "reason": {"type": "integer"}},
        "required": ["grade", "reason"],
        "additionalProperties": False,
    }
)
ROWS = 24


@pytest.mark.usefixtures("loaded_model")
def test_the_command_scores_a_file_with_a_registered_version(
    registered_model: Registered, tmp_path: Path
) -> None:
    source, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    prompts = [f"Document {i % 12}: the sky is blue." for i in range(ROWS - 1)] + ["long " * 4000]
    truth = ["yes" if i % 2 else "no" for i in range(ROWS)]
    pq.write_table(pa.table({"id": range(ROWS), "prompt": prompts, "truth": truth}), source)
    result = CliRunner().invoke(
        score.app,
        [
            *(str(source), "--output", str(output), "--model", "models:/formline-small@champion"),
            *("--json-schema", GRADE, "--typed", "--temperature", "0", "--max-tokens", "48"),
            *(
                "--label",
                "truth",
                "--answer-field",
                "grade",
                "--chunk-rows",
                "7",
                "--logprobs",
                "0",
            ),
        ],
    )
    assert result.exit_code == 3, result.output  # the long prompt is one row's error
    rows = pq.read_table(output).to_pylist()
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert rows[-1]["error"]
    assert rows[-1]["parsed"] is None
    for row in rows[:-1]:
        assert row["error"] is None
        assert row["parsed"] == json.loads(row["output"])
    copies = [(row["prompt"], row["output"]) for row in rows[:-1]]
    assert len(set(copies)) == 12
    (run,) = mlflow.search_runs(
        experiment_names=["tests"],
        filter_string="tags.`formline.kind` = 'scoring'",
        output_format="list",
        max_results=1,
    )
    assert run.data.metrics["rows_with_errors"] == 1
    assert run.data.metrics["rows_copied"] == 11
    assert run.data.params["model"] == registered_model.uri
    assert 0 <= run.data.metrics["accuracy"] <= 1


@pytest.mark.usefixtures("loaded_model")
def test_a_notebook_gets_a_frame_back(registered_model: Registered) -> None:
    frame = pd.DataFrame({"text": ["one", "two"], "n": [1, 2]}, index=["a", "b"])
    answered = score.score_frame(
        frame,
        job=Job(
            model=registered_model.uri,
            prompt_template="Say {{ text }}.",
            params={"choice": '["yes", "no"]', "temperature": 0},
        ),
        options=Options(track=False, quiet=True),
    )
    assert answered.index.tolist() == ["a", "b"]
    assert set(answered["output"]) <= {"yes", "no"}
    assert answered["error"].tolist() == [None, None]


def test_the_scoring_server_gives_the_same_rows(served_model: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"prompt": [f"Say {i}." for i in range(20)]})
    params: dict[str, Any] = {"temperature": 0, "max_tokens": 8, "choice": '["yes", "no"]'}
    target = EndpointTarget(
        f"{served_model}/invocations",
        params,
        request_columns=INPUT_COLUMNS,
        known_params=list(PARAM_DEFAULTS),
    )
    job = Job(endpoint=served_model, params=params)
    answered = score.score_frame(
        frame, job=job, target=target, options=Options(track=False, quiet=True)
    )
    assert set(answered["output"]) <= {"yes", "no"}
    assert answered["error"].isna().all()
