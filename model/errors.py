"""Every error Formline raises on purpose.

FormlineError
├── ConfigError              a registration or an engine argument is wrong
├── RequestError             the caller's payload is wrong (HTTP 400)
│   ├── RowError             one row is wrong: it becomes that row's `error`
│   └── UnsupportedSchema    a constraint that cannot be enforced exactly
└── EngineError              the engine cannot answer (HTTP 503)
    ├── EngineOverloaded     the queue is full: try again later (HTTP 429)
    ├── EngineUnavailable    loading, rebuilding or dead
    ├── DeadlineExceeded     the call's time limit passed before this row was done
    └── CallerLeft           the caller hung up before this row was done
"""

from __future__ import annotations


class FormlineError(Exception):
    """Base of all errors raised on purpose. `code` is stable and machine-readable."""

    code = "INTERNAL_ERROR"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ConfigError(FormlineError):
    """A registration, `model_config` or environment setting is wrong."""

    code = "INVALID_CONFIG"


class RequestError(FormlineError):
    """The caller sent something that can never be answered; sending it again will not help."""

    code = "INVALID_PARAMETER_VALUE"


class RowError(RequestError):
    """One row cannot be answered; the other rows of the call go on."""

    code = "INVALID_ROW"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class UnsupportedSchema(RequestError):
    """A constraint that cannot be enforced exactly, with where and why.

    `pointer` is the JSON pointer of the offending place, `keyword` the keyword there,
    and `hint` what to write instead.
    """

    code = "UNSUPPORTED_SCHEMA"

    def __init__(
        self, reason: str, *, pointer: str = "", keyword: str = "", hint: str = ""
    ) -> None:
        where = f"at {pointer or '/'}" + (f", keyword {keyword!r}" if keyword else "")
        super().__init__(f"{reason} ({where})" + (f". {hint}" if hint else ""))
        self.reason, self.pointer, self.keyword, self.hint = reason, pointer, keyword, hint


class EngineError(FormlineError):
    """The engine cannot answer; the same call may succeed later."""

    code = "TEMPORARILY_UNAVAILABLE"


class EngineOverloaded(EngineError):
    """The queue of waiting rows is full."""

    code = "REQUEST_LIMIT_EXCEEDED"


class EngineUnavailable(EngineError):
    """The engine is loading, being rebuilt, or dead."""


class DeadlineExceeded(EngineError):
    """The call's time limit passed before this row was done."""

    code = "DEADLINE_EXCEEDED"


class CallerLeft(EngineError):
    """The caller hung up before this row was done; nobody reads this but logs and metrics."""

    code = "CANCELLED"
