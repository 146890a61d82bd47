"""Who may call: bearer tokens, no stranger's web page, and no name that merely points here."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.errors import ApiError

OPEN_PATHS = frozenset({"/", "/health", "/openapi.json", "/docs", "/favicon.ico"})


class BearerAuth:
    """ASGI middleware: 401 without one of `tokens`; a page of another origin gets 403.

    With no tokens every caller is let in (loopback only, see Settings), but the Origin check
    still keeps a page opened in the same machine's browser from driving the server. `hosts`, if
    there are any, are the only names it answers to: a stranger's domain that resolves to this
    machine would pass the Origin check. `open_paths` need no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[str],
        *,
        hosts: Collection[str] = (),
        open_paths: Collection[str] = (),
    ) -> None:
        self.app, self.tokens = app, tuple(tokens)
        self.hosts, self.open_paths = frozenset(hosts), OPEN_PATHS | frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal.response()(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        if self.hosts and host_name(headers) not in self.hosts:
            return ApiError(400, "The Host header names another machine than this one.")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return ApiError(403, "Requests from pages of another origin are refused.")
        if not self.tokens or self._is_open(scope["path"]):
            return None
        if accepts(self.tokens, bearer(headers)):
            return None
        return ApiError(
            401, "Send the header `Authorization: Bearer TOKEN` with a token of this server."
        )

    def _is_open(self, path: str) -> bool:
        """Paths that say nothing about endpoints and so need no token."""
        return path in self.open_paths or path.startswith(("/static/", "/.well-known/"))


def host_name(headers: Headers) -> str:
    """The host that the caller thinks it talks to, without its port; empty when it is no name."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def bearer(headers: Headers) -> str:
    """The token of the Authorization header, or the empty string."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def accepts(tokens: Sequence[str], given: str) -> bool:
    """Whether `given` is one of `tokens`, in a time that tells nothing about them."""
    wanted = given.encode()
    matches = [hmac.compare_digest(token.encode(), wanted) for token in tokens]
    return bool(given) and any(matches)


def caller_of(headers: Headers, client_host: str) -> str:
    """A stable, secret-free name for the caller, to count its calls under."""
    token = bearer(headers)
    return hashlib.sha256(token.encode()).hexdigest()[:16] if token else client_host
