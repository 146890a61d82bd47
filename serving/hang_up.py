"""Notices that a client closed its connection while its answer is being made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

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


@asynccontextmanager
async def as_caller(request: Request, model: PyFuncModel) -> AsyncIterator[None]:
    """Predictions made inside are given up by the model when the client hangs up, and with us.

    A model without a `calling` of its own runs on to its end.
    """
    calling = getattr(model.unwrap_python_model(), "calling", None)
    if calling is None:
        yield
        return
    with calling() as caller:
        try:
            async with on_hang_up(request, caller.leave):
                yield
        finally:
            caller.leave()  # also when this request was cancelled or timed out
