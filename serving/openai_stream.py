"""OpenAI's streamed completions over what the model's `predict_stream` yields.

While a row is written that is pieces, {"choice", "delta"} or {"choice", "reasoning"}; at its end
the whole output row, as `predict` would answer it. Log probabilities come with its last chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from mlflow.pyfunc import PyFuncModel

from serving.errors import ApiError
from serving.openai_logprobs import chat_logprobs, text_logprobs
from serving.openai_reply import choices_of, finish_of, head, raise_row_error, usage
from serving.openai_request import ChatRequest, CompletionRequest
from serving.openai_tools import Tools

Piece = Mapping[str, Any]


def chat_chunks(
    model: PyFuncModel, row: dict[str, Any], request: ChatRequest, tools: Tools
) -> Iterator[dict[str, Any]]:
    """The chunks of a chat. A forced tool call comes whole, in its choice's last chunk."""
    first = head("chat.completion.chunk", request.model)
    for number, piece in enumerate(pieces(model, row)):
        for index in range(request.n or 1) if number == 0 else ():
            yield {**first, "choices": [_choice(index, {"role": "assistant", "content": ""})]}
        if "output" in piece:
            logprobs = chat_logprobs(piece, request.top)
            for choice in _last_choices(piece, tools):
                yield {**first, "choices": [{**choice, "logprobs": logprobs}]}
            if request.wants_usage:
                yield {**first, "choices": [], "usage": usage([piece])}
        elif delta := _delta(piece, tools):
            yield {**first, "choices": [_choice(int(piece["choice"]), delta)]}


def text_chunks(
    model: PyFuncModel, rows: list[dict[str, Any]], request: CompletionRequest
) -> Iterator[dict[str, Any]]:
    """The chunks of a text completion of one prompt."""
    if len(rows) != 1:
        raise ApiError(400, f"stream: a streamed call takes one prompt, got {len(rows)}.")
    first = head("text_completion", request.model)
    for piece in pieces(model, rows[0]):
        if "output" in piece:
            logprobs = text_logprobs(piece, request.top)
            for index, choice in enumerate(choices_of(piece)):
                last = {**_text(index, "", finish_of(choice)), "logprobs": logprobs}
                yield {**first, "choices": [last]}
            if request.wants_usage:
                yield {**first, "choices": [], "usage": usage([piece])}
        elif piece.get("delta"):
            yield {**first, "choices": [_text(int(piece["choice"]), piece["delta"], None)]}


def pieces(model: PyFuncModel, row: dict[str, Any]) -> Iterator[Piece]:
    """What the model yields for one row. Raises ApiError for a row that gets no answer."""
    stream = model.predict_stream(pd.DataFrame([row], dtype=object))
    try:
        for piece in stream:
            raise_row_error(piece)
            yield piece
    finally:
        stream.close()


def _delta(piece: Piece, tools: Tools) -> dict[str, Any]:
    if piece.get("reasoning"):
        return {"reasoning_content": piece["reasoning"]}
    text = piece.get("delta")
    return {"content": text} if text and not tools.functions else {}


def _last_choices(row: Piece, tools: Tools) -> Iterator[dict[str, Any]]:
    """The last chunk of each choice: why it ended, and its tool call if there is one."""
    for index, choice in enumerate(choices_of(row)):
        delta = tools.read(choice.get("output") or "") if tools.functions else {}
        for number, call in enumerate(delta.get("tool_calls", ())):
            call["index"] = number
        finish = "tool_calls" if delta.get("tool_calls") else finish_of(choice)
        yield _choice(index, delta, finish)


def _choice(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}


def _text(index: int, text: str, finish: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": finish, "logprobs": None}
