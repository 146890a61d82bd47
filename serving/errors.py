"""The error body of the Databricks REST API: `{"error_code", "message"}` and a status."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

logger = logging.getLogger(__name__)

CODE_BY_STATUS = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    405: "METHOD_NOT_ALLOWED",
    409: "RESOURCE_CONFLICT",
    413: "REQUEST_SIZE_EXCEEDED",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
RETRY_AFTER_S = {429: 1, 503: 2}  # the only ones that clients send again by themselves


class ApiError(Exception):
    """An answer that is not the one asked for. `code` defaults to the status' usual one."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.code = code or CODE_BY_STATUS.get(status, "INTERNAL_ERROR")
        self.retry_after_s = retry_after_s or RETRY_AFTER_S.get(status)

    def body(self) -> dict[str, str]:
        """The JSON body."""
        return {"error_code": self.code, "message": self.message}

    def response(self) -> JSONResponse:
        """The body with its status and, where waiting helps, how long."""
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return JSONResponse(self.body(), status_code=self.status, headers=headers)


def not_found(endpoint: str) -> ApiError:
    """The 404 for an endpoint nobody created."""
    return ApiError(
        404, f"The endpoint {endpoint!r} does not exist. GET /api/2.0/serving-endpoints lists them."
    )


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
