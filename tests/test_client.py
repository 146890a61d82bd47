"""The typed client over mlflow.deployments: types in, values out, wrong names refused."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest
import uvicorn
from fastapi import FastAPI
from mlflow.pyfunc import scoring_server
from pydantic import BaseModel

from client import Client, closed, read_reply
from model.errors import RequestError
from tests.payload_client import PayloadClient

ENDPOINT = "formline"


class GradeModel(BaseModel):
    grade: Literal["yes", "no"]


@dataclass
class GradeRecord:
    grade: Literal["yes", "no"]


class GradeDict(TypedDict):
    grade: Literal["yes", "no"]


@contextmanager
def endpoint(model: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """MLflow's scoring app of `model` at the address where Databricks has an endpoint."""
    app = FastAPI()
    app.mount(f"/serving-endpoints/{ENDPOINT}", scoring_server.init(model))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    monkeypatch.setenv("DATABRICKS_HOST", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("DATABRICKS_TOKEN", "any")
    try:
        yield Client(ENDPOINT)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def payload_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return PayloadClient(tmp_path_factory.mktemp("client") / "model").model


@pytest.fixture
def client(payload_model: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with endpoint(payload_model, monkeypatch) as asked:
        yield asked


def test_rows_and_params_arrive(client: Client) -> None:
    answers = client.answer(
        ["a", {"prompt": "b", "temperature": 0.9}],
        stop=["x", "y"],
        choice=["p", "q"],
        temperature=0.4,
        seed=None,
    )
    requests = [json.loads(answer.output or "") for answer in answers]
    assert [request["messages"][-1]["content"] for request in requests] == ["a", "b"]
    assert [request["fields"]["temperature"] for request in requests] == [0.4, 0.9]
    assert requests[0]["fields"]["stop"] == ["x", "y"]
    assert requests[0]["constraint"]["text"] == '["p","q"]'


@pytest.mark.parametrize(
    "schema",
    [
        GradeModel,
        GradeRecord,
        GradeDict,
        closed(GradeModel.model_json_schema()),
        json.dumps(closed(GradeModel.model_json_schema())),
    ],
)
def test_any_kind_of_schema_is_sent_as_a_json_schema(client: Client, schema: Any) -> None:
    (answer,) = client.answer(["a"], schema=schema)
    output = answer.output
    assert output is not None
    sent = json.loads(json.loads(output)["constraint"]["text"])
    assert sent["properties"]["grade"]["enum"] == ["yes", "no"]
    assert sent["additionalProperties"] is False


def test_an_output_that_does_not_fit_the_type_is_an_error(client: Client) -> None:
    (answer,) = client.answer(["a"], schema=GradeModel)  # the fake answers with its own JSON
    assert answer.value is None
    assert answer.error is not None
    assert answer.error.startswith("INVALID_OUTPUT")


def test_a_row_error_comes_back_in_its_place(client: Client) -> None:
    fine, wrong = client.answer(["a", {"prompt": "b", "top_p": 1.5}])
    assert fine.error is None
    assert (wrong.value, wrong.error) == (
        None,
        "INVALID_PARAMETER_VALUE: top_p must be a number above 0, at most 1, got a number (1.5)",
    )


@pytest.mark.parametrize(
    ("params", "hint"),
    [
        ({"Temperature": 0.1}, "did you mean 'temperature'"),
        ({"guided_json": "{}"}, "no param 'guided_json'"),
    ],
)
def test_report_16_unknown_params_are_refused(
    client: Client, params: dict[str, Any], hint: str
) -> None:
    with pytest.raises(RequestError, match=hint):
        client.answer(["a"], **params)


def test_report_16_unknown_columns_are_refused(client: Client) -> None:
    with pytest.raises(RequestError, match="no column 'Prompt'; did you mean 'prompt'"):
        client.answer([{"Prompt": "a"}])


def test_no_rows_ask_nothing() -> None:
    class Unreachable:
        def predict(self, **_: Any) -> Any:
            raise AssertionError("nothing is to be sent")

    assert Client(ENDPOINT, Unreachable()).answer([]) == []


@pytest.mark.parametrize("reply", [{"predictions": [{"output": "a"}]}, [{"output": "a"}]])
def test_both_shapes_of_reply_are_read(reply: Any) -> None:
    assert read_reply(reply, 1) == [{"output": "a"}]


@pytest.mark.parametrize("reply", [{"predictions": []}, [], {"error": "x"}, None])
def test_a_reply_that_lacks_rows_is_an_error(reply: Any) -> None:
    with pytest.raises(RequestError, match="did not answer each of 1 rows"):
        read_reply(reply, 1)


@pytest.mark.engine
@pytest.mark.parametrize("schema", [GradeModel, GradeRecord, GradeDict])
def test_the_model_answers_in_the_callers_type(
    loaded_model: Any, monkeypatch: pytest.MonkeyPatch, schema: Any
) -> None:
    with endpoint(loaded_model, monkeypatch) as asked:
        answers = asked.answer(["Is 2 even?", "犬は動物ですか"], schema=schema, max_tokens=32)
    assert [answer.error for answer in answers] == [None, None]
    values: list[Any] = [answer.value for answer in answers]
    grades = {value["grade"] if schema is GradeDict else value.grade for value in values}
    assert grades <= {"yes", "no"}
