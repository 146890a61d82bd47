"""The model's answers as OpenAI's reply bodies."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, cast

from serving.errors import ApiError
from serving.openai_logprobs import chat_logprobs, text_logprobs
from serving.openai_request import ChatRequest, CompletionRequest
from serving.openai_tools import Tools

Row = Mapping[str, Any]
STATUS_BY_CODE = {
    "REQUEST_LIMIT_EXCEEDED": 429,
    "TEMPORARILY_UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def chat_reply(request: ChatRequest, answer: Row, tools: Tools) -> dict[str, Any]:
    """The body for one row. Raises ApiError for a row that has no answer."""
    raise_row_error(answer)
    logprobs = chat_logprobs(answer, request.top)
    choices = [_message(i, choice, tools, logprobs) for i, choice in enumerate(choices_of(answer))]
    return {**head("chat.completion", request.model), "choices": choices, "usage": usage([answer])}


def text_reply(request: CompletionRequest, answers: list[Row]) -> dict[str, Any]:
    """The body for one row a prompt, all their choices numbered through."""
    for answer in answers:
        raise_row_error(answer)
    texts = [
        _text(choice, text_logprobs(answer, request.top))
        for answer in answers
        for choice in choices_of(answer)
    ]
    choices = [{"index": index, **text} for index, text in enumerate(texts)]
    return {**head("text_completion", request.model), "choices": choices, "usage": usage(answers)}


def head(kind: str, model: str) -> dict[str, Any]:
    """What every body begins with; `created` is in seconds since 1970."""
    prefix = "cmpl" if kind == "text_completion" else "chatcmpl"
    identity = f"{prefix}-{uuid.uuid4().hex}"
    return {"id": identity, "object": kind, "created": int(time.time()), "model": model}


def usage(answers: Iterable[Row]) -> dict[str, int]:
    """Tokens over all rows."""
    rows = list(answers)
    prompt = sum(int(row.get("prompt_tokens") or 0) for row in rows)
    completion = sum(int(row.get("completion_tokens") or 0) for row in rows)
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


def raise_row_error(answer: Row) -> None:
    """A row without any output is an error of the call; one cut short still has its text."""
    error = answer.get("error")
    if error and answer.get("output") is None:
        raise row_error(str(error))


def row_error(error: str) -> ApiError:
    """A row's `CODE: message` as an ApiError; the caller's fault, unless waiting helps."""
    code, _, message = error.partition(": ")
    return ApiError(STATUS_BY_CODE.get(code, 400), message or error, code=code)


def choices_of(answer: Row) -> list[Row]:
    """A row's `n` answers; the row itself where there is one."""
    many = answer.get("choices")
    return cast(list[Row], json.loads(many)) if many else [answer]


def finish_of(choice: Row) -> str:
    """Why an answer ended, in OpenAI's words."""
    return str(choice.get("finish_reason") or "stop")


def _message(
    index: int, choice: Row, tools: Tools, logprobs: dict[str, Any] | None
) -> dict[str, Any]:
    message = {"role": "assistant", "refusal": None, **tools.read(choice.get("output") or "")}
    if choice.get("reasoning"):
        message["reasoning_content"] = choice["reasoning"]
    finish = "tool_calls" if message.get("tool_calls") else finish_of(choice)
    return {"index": index, "message": message, "finish_reason": finish, "logprobs": logprobs}


def _text(choice: Row, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    text = choice.get("output") or ""
    return {"text": text, "finish_reason": finish_of(choice), "logprobs": logprobs}
