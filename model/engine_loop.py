"""A thread that runs nothing but one asyncio event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EngineLoop:
    """An event loop on a daemon thread of its own, so that it works under any caller's loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Runs `callback(*args)` on the loop, soon. RuntimeError when the loop has stopped."""
        self._loop.call_soon_threadsafe(callback, *args)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts `coroutine` on the loop; the future is for other threads to wait on."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Cancels what is left on the loop, and ends the thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._cancel_tasks()
            self._loop.close()

    def _cancel_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
