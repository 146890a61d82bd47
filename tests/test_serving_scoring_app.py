"""The application of one entity process, over MLflow's real scoring app and a fake model."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import mlflow
import pytest
from starlette.testclient import TestClient

from model.caller import Caller, calling, current_caller
from serving import sse
from serving.scoring_app import build_scoring_app
from tests.live_endpoint import save_fake


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return mlflow.pyfunc.load_model(str(save_fake(tmp_path_factory.mktemp("fake") / "m", "here")))


@pytest.fixture
def client(model: Any) -> Iterator[TestClient]:
    with TestClient(build_scoring_app(model)) as client:
        yield client


def rows(*prompts: str, **more: Any) -> dict[str, Any]:
    return {"dataframe_records": [{"prompt": prompt} for prompt in prompts], **more}


def events(text: str) -> list[Any]:
    """The JSON of each event; the stream must end with [DONE] and hold nothing but data lines."""
    lines = [line for line in text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


class TestInvocations:
    def test_answers_are_mlflows(self, client: TestClient) -> None:
        reply = client.post("/invocations", json=rows("hello", "you"))
        assert [row["output"] for row in reply.json()["predictions"]] == ["hello", "you"]

    @pytest.mark.parametrize(
        "body",
        [
            b"{bad",
            b"[]",
            b"null",
            b"\xff",
            b"{}",
            b'{"inputs": 1, "instances": 2}',
            b'{"dataframe_split": 5}',
            b'{"dataframe_split": {"columns": ["prompt"]}}',
            b'{"dataframe_records": "x"}',
            b'{"dataframe_records": [{"prompt": "x"}], "params": 5}',
            b'{"inputs": {"prompt": ["a", "b"], "n": [1]}}',
            b'{"dataframe_records": [{"prompt": "x"}], "params": {"max_tokens": "many"}}',
        ],
    )
    def test_malformed_bodies_are_the_callers_fault(self, client: TestClient, body: bytes) -> None:
        reply = client.post(
            "/invocations", content=body, headers={"content-type": "application/json"}
        )
        assert reply.status_code == 400
        assert set(reply.json()) == {"error_code", "message"}

    @pytest.mark.parametrize("kind", ["foo/bar", "application/json; charset=latin-1", "x", ";"])
    def test_other_content_types(self, client: TestClient, kind: str) -> None:
        reply = client.post("/invocations", content=b"{}", headers={"content-type": kind})
        assert reply.status_code == 415
        assert reply.json()["error_code"] == "UNSUPPORTED_MEDIA_TYPE"

    def test_a_failing_model_tells_neither_rows_nor_trace(self, client: TestClient) -> None:
        reply = client.post("/invocations", json=rows("raise", "secret-document"))
        assert reply.status_code == 400
        assert "secret-document" not in reply.text
        assert "Traceback" not in reply.text

    def test_an_oversize_body(self, client: TestClient) -> None:
        body = b"x" * (16 * 1024 * 1024 + 1)
        assert client.post("/invocations", content=body).status_code == 413


class TestStream:
    def test_pieces_then_the_row_then_done(self, client: TestClient) -> None:
        reply = client.post("/invocations", json=rows("a b", stream=True))
        assert reply.headers["content-type"].startswith("text/event-stream")
        received = events(reply.text)
        assert [piece.get("delta") for piece in received] == ["a ", "b ", None]
        assert received[-1]["output"] == "a b"

    def test_a_fault_midway_is_an_event(self, client: TestClient) -> None:
        received = events(client.post("/invocations", json=rows("a fault b", stream=True)).text)
        assert received[0]["delta"] == "a "
        assert set(received[1]) == {"error_code", "message", "error"}
        assert len(received) == 2

    def test_a_fault_at_the_start_is_a_status(self, client: TestClient) -> None:
        for body in (rows("raise", stream=True), {"inputs": 5, "instances": 5, "stream": True}):
            assert client.post("/invocations", json=body).status_code == 400

    def test_one_row_a_stream(self, client: TestClient) -> None:
        reply = client.post("/invocations", json=rows("a", "b", stream=True))
        assert reply.status_code == 400
        assert "one row" in reply.json()["message"]

    @pytest.mark.parametrize("value", [False, "true", 1, None])
    def test_only_true_asks_for_a_stream(self, client: TestClient, value: Any) -> None:
        reply = client.post("/invocations", json=rows("a", stream=value))
        assert reply.json()["predictions"][0]["output"] == "a"


class TestPump:
    async def read(self, pump: sse.Pump, count: int) -> list[Any]:
        return [await pump.next() for _ in range(count)]

    def test_a_reader_that_leaves_closes_the_iterator(self) -> None:
        import asyncio

        closed: list[bool] = []

        def endless() -> Iterator[int]:
            try:
                number = 0
                while True:
                    yield (number := number + 1)
            finally:
                closed.append(True)

        async def scenario() -> list[Any]:
            pump = sse.Pump(endless, Caller())
            read = await self.read(pump, 200)
            pump.stop()
            return read

        assert asyncio.run(scenario()) == list(range(1, 201))
        limit = time.monotonic() + 30
        while not closed:
            assert time.monotonic() < limit
            time.sleep(0.01)

    def test_a_reader_that_leaves_ends_what_is_computed(self) -> None:
        """Before the first item, too."""
        import asyncio

        ended = threading.Event()

        def computing() -> Iterator[int]:
            woken = threading.Event()
            with current_caller().waiting(woken.set):
                if woken.wait(30) and current_caller().left:
                    ended.set()
            yield 1

        async def scenario() -> None:
            with calling() as caller:
                pump = sse.Pump(computing, caller)
            await asyncio.sleep(0.1)
            pump.stop()

        asyncio.run(scenario())
        assert ended.wait(20)

    def test_runs_ahead_of_its_reader_by_a_bounded_number(self) -> None:
        import asyncio

        made: list[int] = []

        def counted() -> Iterator[int]:
            for number in range(10_000):
                made.append(number)
                yield number

        async def scenario() -> int:
            pump = sse.Pump(counted, Caller())
            await self.read(pump, 10)
            await asyncio.sleep(0.2)
            ahead = len(made)
            pump.stop()
            return ahead

        assert asyncio.run(scenario()) <= 10 + sse.MAX_WAITING + 1


class TestOpenAi:
    def chat(self, client: TestClient, text: str, **more: Any) -> Any:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        return client.post("/v1/chat/completions", json=body)

    def test_a_chat(self, client: TestClient) -> None:
        reply = self.chat(client, "hello you").json()
        choice = reply["choices"][0]
        assert choice["message"]["content"] == "hello you"
        assert choice["finish_reason"] == "stop"
        assert reply["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}

    def test_a_streamed_chat_with_usage(self, client: TestClient) -> None:
        more = {"stream": True, "stream_options": {"include_usage": True}}
        received = events(self.chat(client, "a b", **more).text)
        deltas = [c["delta"].get("content") for e in received for c in e["choices"]]
        assert deltas == ["", "a ", "b ", None]
        assert received[-2]["choices"][0]["finish_reason"] == "stop"
        assert received[-1]["usage"]["total_tokens"] == 4

    def test_a_forced_call_comes_whole(self, client: TestClient) -> None:
        call = '{"name": "f", "arguments": {"x": 1}}'
        tools = [{"type": "function", "function": {"name": "f"}}]
        more = {"tools": tools, "tool_choice": "required"}
        message = self.chat(client, call, **more).json()["choices"][0]["message"]
        assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x": 1}'}
        received = events(self.chat(client, call, stream=True, **more).text)
        last = received[-1]["choices"][0]
        assert last["finish_reason"] == "tool_calls"
        assert last["delta"]["tool_calls"][0]["index"] == 0

    def test_prompts_become_choices(self, client: TestClient) -> None:
        reply = client.post("/v1/completions", json={"model": "m", "prompt": ["a", "b c"]}).json()
        assert [(c["index"], c["text"]) for c in reply["choices"]] == [(0, "a"), (1, "b c")]
        assert reply["usage"]["completion_tokens"] == 3

    def test_a_row_without_an_answer_is_an_error(self, client: TestClient) -> None:
        for more in ({}, {"stream": True}):
            reply = self.chat(client, "reject", **more)
            assert reply.status_code == 400
            assert reply.json() == {
                "error_code": "INVALID_ROW",
                "message": "the fake was told to reject it",
            }

    def test_what_the_model_cannot_do_is_named(self, client: TestClient) -> None:
        reply = self.chat(client, "a", logit_bias={"1": 2})
        assert reply.status_code == 400
        assert "logit_bias" in reply.json()["message"]


class TestProbes:
    def test_health_follows_the_model(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        class Health:
            alive, detail = True, "engine died three times"

        python_model = model.unwrap_python_model()
        monkeypatch.setattr(python_model, "health", lambda: Health, raising=False)
        with TestClient(build_scoring_app(model)) as client:
            assert client.get("/health").status_code == 200
            monkeypatch.setattr(Health, "alive", False)
            reply = client.get("/ping")
        assert reply.status_code == 503
        assert "engine died three times" in reply.json()["message"]

    def test_metrics_and_version(self, client: TestClient) -> None:
        assert "python_info" in client.get("/metrics").text
        assert client.get("/version").text == mlflow.__version__

    def test_tokens_guard_a_tcp_port(self, model: Any) -> None:
        with TestClient(build_scoring_app(model, tokens=["right"])) as client:
            assert client.post("/invocations", json=rows("a")).status_code == 401
            headers = {"authorization": "Bearer right"}
            assert client.post("/invocations", json=rows("a"), headers=headers).status_code == 200
            assert {client.get(path).status_code for path in ("/health", "/ping")} == {200}
            assert client.get("/metrics").status_code == 401
        with TestClient(build_scoring_app(model, ["right"], open_metrics=True)) as client:
            assert client.get("/metrics").status_code == 200
            assert client.post("/invocations", json=rows("a")).status_code == 401
