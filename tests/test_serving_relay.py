"""Calls handed on to an entity: time limits, broken answers, and the place that is held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from serving.errors import ApiError
from serving.relay import relay

Handler = Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]
STREAM = {"content-type": "text/event-stream"}


class FakeEntity:
    """A FAKE ServedEntity: one place, and an upstream that answers as the test says."""

    name = "fake-1"

    def __init__(self, handler: Handler) -> None:
        self.client = httpx.AsyncClient(
            transport=httpx.MockTransport(handler), base_url="http://entity", timeout=5
        )
        self.held = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Any]:
        self.held += 1
        try:
            yield SimpleNamespace(client=self.client)
        finally:
            self.held -= 1


class Broken(httpx.AsyncByteStream):
    """A body that ends with `error`, or never, after its pieces."""

    def __init__(self, *pieces: bytes, error: Exception | None = None) -> None:
        self.pieces, self.error = pieces, error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.error is not None:
            raise self.error
        await asyncio.sleep(60)


async def call(entity: FakeEntity, limit_s: float = 30.0) -> Response:
    headers = {"content-type": "application/json", "authorization": "Bearer secret"}
    return await relay(entity, "/invocations", b"{}", headers, limit_s)  # type: ignore[arg-type]


async def body_of(response: Response) -> bytes:
    """Run the response as a server would; its whole body."""
    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    return b"".join(sent)


def last_error(body: bytes) -> Any:
    lines = [line for line in body.decode().splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    return json.loads(lines[-2].removeprefix("data: "))["error_code"]


def test_an_answer_comes_back_as_it_is_and_the_token_stays_here() -> None:
    seen: dict[str, str] = {}

    async def handler(request: httpx.Request) -> httpx.Response:
        seen.update(request.headers)
        return httpx.Response(418, text="{}", headers={"retry-after": "3", "x-inner": "1"})

    async def scenario() -> Response:
        entity = FakeEntity(handler)
        response = await call(entity)
        assert entity.held == 0
        return response

    response = asyncio.run(scenario())
    assert response.status_code == 418
    assert response.headers["served-model-name"] == "fake-1"
    assert response.headers["retry-after"] == "3"
    assert "x-inner" not in response.headers
    assert "authorization" not in seen


def test_a_call_past_the_execution_limit() -> None:
    async def handler(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        return httpx.Response(200)

    async def scenario() -> int:
        entity = FakeEntity(handler)
        with pytest.raises(ApiError) as late:
            await call(entity, limit_s=0.05)
        assert (late.value.status, late.value.code) == (504, "DEADLINE_EXCEEDED")
        return entity.held

    assert asyncio.run(scenario()) == 0


@pytest.mark.parametrize("error", [httpx.ReadError("x"), httpx.ConnectError("x")])
def test_an_entity_that_ends_during_the_call(error: httpx.HTTPError) -> None:
    async def handler(request: httpx.Request) -> httpx.Response:
        raise error

    async def scenario() -> int:
        entity = FakeEntity(handler)
        with pytest.raises(ApiError) as lost:
            await call(entity)
        assert lost.value.status == 503
        return entity.held

    assert asyncio.run(scenario()) == 0


@pytest.mark.parametrize(
    ("stream", "limit_s", "code"),
    [
        (Broken(b"data: 1\n\n", error=httpx.ReadError("x")), 30.0, "TEMPORARILY_UNAVAILABLE"),
        (Broken(b"data: 1\n\n"), 0.2, "DEADLINE_EXCEEDED"),
    ],
)
def test_a_stream_that_breaks_off_says_so(stream: Broken, limit_s: float, code: str) -> None:
    async def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=stream, headers=STREAM)

    async def scenario() -> bytes:
        entity = FakeEntity(handler)
        response = await call(entity, limit_s)
        assert entity.held == 1
        body = await body_of(response)
        assert entity.held == 0
        return body

    body = asyncio.run(scenario())
    assert body.startswith(b"data: 1\n\n")
    assert last_error(body) == code
