"""Every error of an application, its own and the framework's, as one kind of reply."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from serving.errors import CODE_BY_STATUS, ApiError
from serving.replies import ErrorBody

logger = logging.getLogger(__name__)

# For OpenAPI. Without "4XX" FastAPI would add its own 422, which is never sent.
ERRORS: dict[int | str, dict[str, Any]] = {
    **{
        status: {"model": ErrorBody, "description": code} for status, code in CODE_BY_STATUS.items()
    },
    "4XX": {"model": ErrorBody, "description": "Another fault of the request"},
}


def describe_validation(errors: Sequence[Any]) -> str:
    """Every fault of a request as `where: what`, without repeating the caller's values."""
    return "; ".join(f"{_where(error['loc'])}: {error['msg']}" for error in errors)


def _where(loc: Sequence[str | int]) -> str:
    """`("body", "config", "served_entities", 0)` as `config.served_entities[0]`."""
    path = ""
    for part in loc[1:] or loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".")


def install(app: FastAPI) -> None:
    """Make every error of `app`, its own and the framework's, carry the same body."""

    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> JSONResponse:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return ApiError(400, describe_validation(error.errors())).response()

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {error.detail}"
        return ApiError(error.status_code, message).response()

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> JSONResponse:
        logger.error("fault in %s %s", request.method, request.url.path, exc_info=error)
        return ApiError(500, "The server failed; its log says why.").response()
