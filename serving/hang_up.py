"""Notices that a client closed its connection while its answer is being made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, Protocol

from fastapi import Request, Response
from mlflow.pyfunc import PyFuncModel

CLIENT_CLOSED = 499  # nobody reads it; logs and metrics do


@asynccontextmanager
async def on_hang_up(request: Request, tell: Callable[[], object]) -> AsyncIterator[None]:
    """Calls `tell` when the client hangs up meanwhile. The request's body must have been read."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue
        tell()

    watcher = asyncio.create_task(watch(), name="hang-up")
    try:
        yield
    finally:
        watcher.cancel()


async def while_connected(request: Request, answer: Coroutine[Any, Any, Response]) -> Response:
    """What `answer` returns. If the client hangs up it is cancelled, and lets go what it holds."""
    task = asyncio.create_task(answer)
    try:
        async with on_hang_up(request, task.cancel):
            await asyncio.wait({task})
    finally:
        task.cancel()
    return Response(status_code=CLIENT_CLOSED) if task.cancelled() else task.result()


class Caller(Protocol):
    """Whose calls a model gives up once it has left."""

    def leave(self) -> None: ...


class _Unheard:
    """The caller of a model that cannot be told; its calls run on to their end."""

    def leave(self) -> None:
        return


def calling(model: PyFuncModel) -> AbstractContextManager[Caller]:
    """Calls to the model made inside, in this context and copies of it, belong to one caller."""
    own = getattr(model.unwrap_python_model(), "calling", None)
    return nullcontext(_Unheard()) if own is None else own()


@asynccontextmanager
async def as_caller(request: Request, model: PyFuncModel) -> AsyncIterator[None]:
    """Predictions made inside are given up by the model when the client hangs up, and with us."""
    with calling(model) as caller:
        try:
            async with on_hang_up(request, caller.leave):
                yield
        finally:
            caller.leave()  # also when this request was cancelled or timed out
