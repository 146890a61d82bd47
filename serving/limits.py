"""Bounds on what callers may ask: body size, and calls a minute."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.errors import ApiError
from serving.schemas import RateLimit

MINUTE_S = 60.0
MAX_CALLERS = 10_000
ENFORCED = ("endpoint", "user")  # there are no groups and no principals here


class BodyLimit:
    """ASGI middleware: a body over `limit` bytes is refused before it is kept in memory."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if _declared_length(scope) > self.limit:
            await self._refusal().response()(scope, receive, send)
            return
        await self.app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counting() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.limit:
                raise self._refusal()
            return message

        return counting

    def _refusal(self) -> ApiError:
        return ApiError(
            413,
            f"The request body is over the limit of {self.limit} bytes. Send fewer rows a request.",
        )


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


class RateLimiter:
    """Sliding one-minute windows; one a limit, and one a caller where the limit is per user."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[tuple[int, str], deque[float]] = {}

    def check(self, limits: Iterable[RateLimit], caller: str) -> None:
        """Count one call, or raise the 429 that says when to come back."""
        now = self._clock()
        counted = [
            (limit, self._window(n, limit, caller, now))
            for n, limit in enumerate(limits)
            if limit.key in ENFORCED and limit.calls is not None
        ]
        for limit, window in counted:
            if len(window) >= (limit.calls or 0):
                raise _too_many(limit, window, now)
        for _, window in counted:
            window.append(now)

    def _window(self, number: int, limit: RateLimit, caller: str, now: float) -> deque[float]:
        key = (number, caller if limit.key == "user" else "")
        if key not in self._calls and len(self._calls) >= MAX_CALLERS:
            self._forget_idle(now)
        window = self._calls.setdefault(key, deque())
        while window and window[0] <= now - MINUTE_S:
            window.popleft()
        return window

    def _forget_idle(self, now: float) -> None:
        idle = [k for k, w in self._calls.items() if not w or w[-1] <= now - MINUTE_S]
        for key in idle:
            del self._calls[key]


def _too_many(limit: RateLimit, window: deque[float], now: float) -> ApiError:
    wait = int(window[0] + MINUTE_S - now) + 1 if window else int(MINUTE_S)
    return ApiError(
        429,
        f"The rate limit of {limit.calls} calls a minute per {limit.key} is used up; wait {wait}s.",
        retry_after_s=wait,
    )
