"""The worked example: five Japanese documents graded, over REST and in process."""

from __future__ import annotations

import json
import threading
from typing import Any

import pandas as pd
import pytest
import requests

from scripts.worked_example import DOCUMENTS, PARAMS, Grade

pytestmark = pytest.mark.engine


def grades(outputs: list[str]) -> list[str]:
    return [Grade.model_validate_json(output).grade for output in outputs]


def test_rest_answers_every_document_validly(served_model: str) -> None:
    body = {"dataframe_records": [{"prompt": text} for text in DOCUMENTS], "params": PARAMS}
    reply = requests.post(f"{served_model}/invocations", json=body, timeout=300)
    assert reply.status_code == 200, reply.text
    predictions = reply.json()["predictions"]
    assert len(grades([row["output"] for row in predictions])) == len(DOCUMENTS)
    assert all(row["error"] is None and row["finish_reason"] == "stop" for row in predictions)


def test_the_article_s_defaults_answer_a_bare_prompt(served_model: str) -> None:
    body = {"inputs": [{"prompt": "Name one fruit."}]}
    reply = requests.post(f"{served_model}/invocations", json=body, timeout=300)
    assert reply.status_code == 200, reply.text
    [row] = reply.json()["predictions"]
    assert row["output"]
    assert row["completion_tokens"] > 0


def test_a_wrong_param_is_the_caller_s_error_and_echoes_no_rows(served_model: str) -> None:
    secret = "my secret document"
    body = {"dataframe_records": [{"prompt": secret}], "params": {"temperature": 99.0}}
    reply = requests.post(f"{served_model}/invocations", json=body, timeout=300)
    assert reply.status_code == 400
    assert "temperature" in reply.text
    assert secret not in reply.text
    assert "Traceback" not in reply.text


def test_pyfunc_answers_every_document_validly(loaded_model: Any) -> None:
    answers = loaded_model.predict(pd.DataFrame({"prompt": DOCUMENTS}), params=PARAMS)
    assert list(answers.columns[:3]) == ["output", "finish_reason", "error"]
    assert len(grades(list(answers["output"]))) == len(DOCUMENTS)
    assert answers["error"].isna().all()


def test_japanese_and_emoji_literals_come_out_whole(loaded_model: Any) -> None:
    schema = {"enum": ["とても嬉しい😀", "悲しい😢"]}
    answers = loaded_model.predict(
        pd.DataFrame({"prompt": ["今日の気分は?"]}), params={"json_schema": json.dumps(schema)}
    )
    assert json.loads(answers["output"][0]) in schema["enum"]


def test_each_row_may_bring_its_own_schema(loaded_model: Any) -> None:
    rows = pd.DataFrame(
        {
            "prompt": ["Is the sky blue?", "How many legs has a cat?", "Say hello."],
            "json_schema": pd.Series(
                ['{"type":"boolean"}', '{"type":"integer","minimum":0,"maximum":9}', None],
                dtype=object,
            ),
        }
    )
    answers = loaded_model.predict(rows, params={"max_tokens": 32})
    assert isinstance(json.loads(answers["output"][0]), bool)
    assert json.loads(answers["output"][1]) in range(10)
    assert answers["output"][2]


def test_a_bad_row_is_its_own_error_only(loaded_model: Any) -> None:
    rows = pd.DataFrame(
        {
            "prompt": ["Say hello.", "Say hello.", "x " * 5000],
            "json_schema": pd.Series([None, '{"type": "strin"}', None], dtype=object),
        }
    )
    answers = loaded_model.predict(rows, params={"max_tokens": 8})
    assert answers["error"][0] is None
    assert answers["output"][0]
    assert "strin" in answers["error"][1]
    assert "PROMPT_TOO_LONG" in answers["error"][2]


def test_concurrent_calls_get_their_own_answers(loaded_model: Any) -> None:
    words = [f"word{number}" for number in range(8)]
    answers: dict[str, str] = {}

    def call(word: str) -> None:
        params = {"json_schema": json.dumps({"const": word})}
        frame = loaded_model.predict(pd.DataFrame({"prompt": [word]}), params=params)
        answers[word] = json.loads(frame["output"][0])

    threads = [threading.Thread(target=call, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {word: word for word in words}


def test_an_empty_call_has_no_rows(loaded_model: Any) -> None:
    assert len(loaded_model.predict(pd.DataFrame({"prompt": []}))) == 0
