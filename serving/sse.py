"""Server-sent events from a model's blocking iterator; a client that leaves closes it."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from fastapi import Request
from mlflow.pyfunc import PyFuncModel
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from serving.errors import ApiError
from serving.hang_up import Caller, calling, on_hang_up
from serving.mlflow_errors import from_exception

MAX_WAITING = 64
DONE = b"data: [DONE]\n\n"
_END = object()


def event(data: Any) -> bytes:
    """One event holding JSON. Only `data:` lines are sent: some clients break on comments."""
    return f"data: {json.dumps(data, ensure_ascii=False, default=str)}\n\n".encode()


async def event_stream(
    request: Request, model: PyFuncModel, start: Callable[[], Iterator[Any]]
) -> StreamingResponse:
    """The chunks of `start()`, which asks the model in a thread, as events, then `[DONE]`.

    An error before the first chunk is raised as ApiError, a later one becomes the last event.
    """
    with calling(model) as caller:
        pump = Pump(start, caller)
    try:
        async with on_hang_up(request, pump.stop):
            first = await pump.next()
    except BaseException:
        pump.stop()
        raise
    return _PumpResponse(pump, first)


class _PumpResponse(StreamingResponse):
    """Stops its pump when it is over, also when the client left before the end."""

    def __init__(self, pump: Pump, first: Any) -> None:
        super().__init__(_events(pump, first), media_type="text/event-stream")
        self._pump = pump

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pump.stop()


async def _events(pump: Pump, item: Any) -> AsyncIterator[bytes]:
    try:
        while item is not _END:
            yield event(item)
            item = await pump.next()
    except ApiError as error:
        yield event(error.event())
    yield DONE


class Pump:
    """Runs a blocking iterator in a thread of its own, a bounded number of items ahead.

    The iterator is closed by the thread that runs it, so never while it is computing; `caller`,
    whose context the thread inherits, ends a computation that nobody waits for.
    """

    def __init__(self, start: Callable[[], Iterator[Any]], caller: Caller) -> None:
        self._start, self._caller = start, caller
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Any] = asyncio.Queue()
        self._room = threading.Semaphore(MAX_WAITING)
        self._stopped = threading.Event()
        inside = contextvars.copy_context().run
        threading.Thread(target=inside, args=(self._run,), name="stream", daemon=True).start()

    async def next(self) -> Any:
        """The next item, or the end mark. Raises ApiError where the iterator failed."""
        item = await self._items.get()
        self._room.release()
        if isinstance(item, ApiError):
            raise item
        return item

    def stop(self) -> None:
        """Ask the thread to close the iterator, now rather than at its next item."""
        self._stopped.set()
        self._room.release()
        self._caller.leave()

    def _run(self) -> None:
        try:
            self._drive(self._start())
        except Exception as error:  # noqa: BLE001 - it becomes the stream's last event
            self._put(from_exception(error))
        self._put(_END)

    def _drive(self, iterator: Iterator[Any]) -> None:
        try:
            for item in iterator:
                self._room.acquire()
                if self._stopped.is_set():
                    return
                self._put(item)
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    def _put(self, item: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
