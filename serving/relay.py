"""Hands a call to an entity's process and its answer back, whole or as it streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

import httpx
from fastapi import Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from serving.errors import ApiError
from serving.served_entity import ServedEntity

PASSED_ON = ("content-type", "accept")
EVENT_STREAM = "text/event-stream"


async def relay(
    entity: ServedEntity, path: str, body: bytes, headers: Mapping[str, str], limit_s: float
) -> Response:
    """Call `path` of the entity's process; its place is held until the answer is over."""
    deadline = asyncio.get_running_loop().time() + limit_s
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(entity.slot())
        upstream = await _ask(process.client, path, body, headers, deadline)
        stack.push_async_callback(upstream.aclose)
        if upstream.headers.get("content-type", "").startswith(EVENT_STREAM):
            return _Stream(upstream, entity.name, deadline, stack.pop_all())
        content = await _whole(upstream, deadline)
    return Response(
        content, upstream.status_code, {"served-model-name": entity.name, **_kept(upstream)}
    )


async def _ask(
    client: httpx.AsyncClient, path: str, body: bytes, headers: Mapping[str, str], deadline: float
) -> httpx.Response:
    passed = {name: headers[name] for name in PASSED_ON if name in headers}
    request = client.build_request("POST", path, content=body, headers=passed)
    try:
        async with asyncio.timeout_at(deadline):
            return await client.send(request, stream=True)
    except TimeoutError:
        raise _too_slow() from None
    except httpx.HTTPError as error:
        raise _lost(error) from None


async def _whole(upstream: httpx.Response, deadline: float) -> bytes:
    try:
        async with asyncio.timeout_at(deadline):
            return await upstream.aread()
    except TimeoutError:
        raise _too_slow() from None
    except httpx.HTTPError as error:
        raise _lost(error) from None


class _Stream(StreamingResponse):
    """Server-sent events passed through; `held` is let go when the client has them or has left."""

    def __init__(
        self, upstream: httpx.Response, entity: str, deadline: float, held: AsyncExitStack
    ) -> None:
        headers = {
            "served-model-name": entity,
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",
        }
        super().__init__(_events(upstream, deadline), upstream.status_code, headers, EVENT_STREAM)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)


async def _events(upstream: httpx.Response, deadline: float) -> AsyncIterator[bytes]:
    """The upstream's bytes; a stream that breaks off ends with an error event, never in silence."""
    chunks = upstream.aiter_raw()
    try:
        while True:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk
    except TimeoutError:
        yield _last_event(_too_slow())
    except httpx.HTTPError as error:
        yield _last_event(_lost(error))


def _last_event(error: ApiError) -> bytes:
    return f"data: {json.dumps(error.event())}\n\ndata: [DONE]\n\n".encode()


def _kept(upstream: httpx.Response) -> dict[str, str]:
    return {
        name: upstream.headers[name]
        for name in ("content-type", "retry-after")
        if name in upstream.headers
    }


def _too_slow() -> ApiError:
    return ApiError(
        504, "The request ran past the endpoint's execution limit. Send fewer rows a request."
    )


def _lost(error: httpx.HTTPError) -> ApiError:
    return ApiError(
        503,
        f"The served entity ended during the call ({type(error).__name__}); it is being restarted.",
    )
