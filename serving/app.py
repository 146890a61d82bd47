"""One FastAPI application out of the rooms of this package."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from serving import error_replies, invocations, management, openai_gateway, status
from serving.auth import BearerAuth
from serving.limits import BodyLimit
from serving.metrics import ServerMetrics
from serving.settings import Settings
from serving.supervisor import Supervisor

# Tokens are checked by BearerAuth, on every path; this only tells OpenAPI's readers of them.
SHOWN_IN_OPENAPI = Depends(HTTPBearer(auto_error=False, description="A token of this server"))


def build_app(settings: Settings) -> FastAPI:
    """The application; its endpoints start with its lifespan and stop with it."""
    app = FastAPI(
        title="Formline local endpoint",
        version="1",
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.metrics = ServerMetrics()
    error_replies.install(app)
    for room in (openai_gateway, management, invocations, status):
        app.include_router(room.router, dependencies=[SHOWN_IN_OPENAPI])
    app.include_router(status.open_router)
    app.add_middleware(BodyLimit, limit=settings.limits.body_bytes)
    app.add_middleware(BearerAuth, tokens=settings.tokens, hosts=settings.hosts)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    supervisor = Supervisor(app.state.settings)
    app.state.supervisor = supervisor
    supervisor.start()
    try:
        yield
    finally:
        await supervisor.stop()


def _operation_id(route: APIRoute) -> str:
    return route.name
