"""The error body of the Databricks REST API: `{"error_code", "message"}` and a status."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

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

    def event(self) -> dict[str, Any]:
        """The body as a stream's last event; OpenAI's clients raise what is under `error`."""
        return {**self.body(), "error": {"code": self.code, "message": self.message}}

    def response(self) -> JSONResponse:
        """The body with its status and, where waiting helps, how long."""
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return JSONResponse(self.body(), status_code=self.status, headers=headers)


def not_found(endpoint: str) -> ApiError:
    """The 404 for an endpoint nobody created."""
    return ApiError(
        404, f"The endpoint {endpoint!r} does not exist. GET /api/2.0/serving-endpoints lists them."
    )
