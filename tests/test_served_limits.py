"""A call's limits as a server's clients meet them: MLflow's scoring app over the real engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import mlflow
import pytest

from model.engine import Engine
from model.pyfunc_model import SERVED_MARK
from serving.scoring_app import build_scoring_app

pytestmark = pytest.mark.engine

DEADLINE_S = 2.0
LONG, SHORT = {"max_tokens": 1900, "min_tokens": 1900}, {"max_tokens": 2}
MORE_THAN_MLFLOWS_THREADS = 40

Ask = Callable[..., httpx.Response]


@pytest.fixture
def app(
    registered_model: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """The application over a version loaded with the settings given; all share one engine."""
    monkeypatch.setenv(SERVED_MARK, "yes")

    def make(**settings: Any) -> Any:
        model = mlflow.pyfunc.load_model(registered_model.uri, model_config=settings)
        assert model.unwrap_python_model().engine is engine
        return build_scoring_app(model)

    return make


async def ask(client: httpx.AsyncClient, rows: int, params: dict[str, Any]) -> httpx.Response:
    records = [{"prompt": f"Tell long story number {n}."} for n in range(rows)]
    return await client.post("/invocations", json={"dataframe_records": records, "params": params})


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://entity", timeout=300
    )


def codes(reply: httpx.Response) -> list[str | None]:
    return [row["error"] and row["error"].split(":")[0] for row in reply.json()["predictions"]]


def test_calls_that_hit_their_deadline_leave_no_thread_behind(app: Callable[..., Any]) -> None:
    """However many: the next call is answered as if they had never been."""

    async def scenario() -> tuple[list[httpx.Response], httpx.Response]:
        async with client_of(app(served_deadline_s=DEADLINE_S)) as client:
            calls = (ask(client, 2, LONG) for _ in range(MORE_THAN_MLFLOWS_THREADS))
            late = await asyncio.gather(*calls)
            return late, await ask(client, 1, SHORT)

    late, after = asyncio.run(scenario())
    assert {reply.status_code for reply in late} == {200}
    assert {code for reply in late for code in codes(reply)} == {"DEADLINE_EXCEEDED"}
    assert codes(after) == [None]


def test_a_full_queue_is_429_and_says_when_to_come_back(app: Callable[..., Any]) -> None:
    async def scenario() -> tuple[httpx.Response, httpx.Response]:
        served = app(served_deadline_s=20.0, max_waiting_rows=4)
        async with client_of(served) as client:
            filling = asyncio.create_task(ask(client, 4, LONG))
            while served.state.model.unwrap_python_model().engine._admission.waiting < 4:
                await asyncio.sleep(0.05)
            refused = await ask(client, 1, SHORT)
            filling.cancel()
            return refused, await asyncio.wait_for(retried(client), 60)

    async def retried(client: httpx.AsyncClient) -> httpx.Response:
        while (reply := await ask(client, 1, SHORT)).status_code == 429:
            await asyncio.sleep(float(reply.headers["retry-after"]))
        return reply

    refused, answered = asyncio.run(scenario())
    assert refused.status_code == 429
    assert refused.json()["error_code"] == "REQUEST_LIMIT_EXCEEDED"
    assert int(refused.headers["retry-after"]) >= 1
    assert answered.status_code == 200
    assert codes(answered) == [None]


@pytest.mark.parametrize("params", [{"json_schema": json.dumps({"type": "nonsense"})}])
def test_what_will_fail_again_is_never_worth_a_retry(
    app: Callable[..., Any], params: dict[str, Any]
) -> None:
    async def scenario() -> httpx.Response:
        async with client_of(app()) as client:
            return await ask(client, 1, params)

    reply = asyncio.run(scenario())
    assert reply.status_code == 400
    assert "retry-after" not in reply.headers
