"""OpenAI's streamed completions over the pieces that the model's `predict_stream` yields.

A piece is a dict: `output` (the next text), and where the model has them `row`, `choice`,
`reasoning`, `finish_reason`, `error`, `prompt_tokens` and `completion_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from mlflow.pyfunc import PyFuncModel

from serving.errors import ApiError
from serving.openai_reply import head, row_error, usage
from serving.openai_request import ChatRequest, CompletionRequest
from serving.openai_tools import Tools

Piece = Mapping[str, Any]


def chat_chunks(
    model: PyFuncModel, row: dict[str, Any], request: ChatRequest, tools: Tools
) -> Iterator[dict[str, Any]]:
    """The chunks of a chat. The text of a forced tool call is held back until it is whole."""
    first = head("chat.completion.chunk", request.model)
    opened: set[int] = set()
    held: dict[int, str] = {}
    last: Piece = {}
    for last in pieces(model, row):
        index = int(last.get("choice") or 0)
        held[index] = held.get(index, "") + (last.get("output") or "")
        delta = {} if index in opened else {"role": "assistant"}
        opened.add(index)
        delta |= _delta(last, held[index], tools)
        yield {**first, "choices": [_choice(index, last, delta, tools)]}
    if request.wants_usage:
        yield {**first, "choices": [], "usage": usage([last])}


def text_chunks(
    model: PyFuncModel, rows: list[dict[str, Any]], request: CompletionRequest
) -> Iterator[dict[str, Any]]:
    """The chunks of a text completion of one prompt."""
    if len(rows) != 1:
        raise ApiError(400, f"stream: a streamed call takes one prompt, got {len(rows)}.")
    first = head("text_completion", request.model)
    last: Piece = {}
    for last in pieces(model, rows[0]):
        choice = {
            "index": int(last.get("choice") or 0),
            "text": last.get("output") or "",
            "finish_reason": last.get("finish_reason"),
            "logprobs": None,
        }
        yield {**first, "choices": [choice]}
    if request.wants_usage:
        yield {**first, "choices": [], "usage": usage([last])}


def pieces(model: PyFuncModel, row: dict[str, Any]) -> Iterator[Piece]:
    """The model's pieces for one row. Raises ApiError for a row that gets no answer."""
    stream = model.predict_stream(pd.DataFrame([row], dtype=object))
    try:
        for piece in stream:
            if piece.get("error") and piece.get("output") is None:
                raise row_error(str(piece["error"]))
            yield piece
    finally:
        stream.close()


def _delta(piece: Piece, so_far: str, tools: Tools) -> dict[str, Any]:
    delta: dict[str, Any] = {}
    if piece.get("reasoning"):
        delta["reasoning_content"] = piece["reasoning"]
    if not tools.functions:
        return {**delta, "content": piece.get("output") or ""}
    if piece.get("finish_reason"):
        delta |= tools.read(so_far)
    return delta


def _choice(index: int, piece: Piece, delta: dict[str, Any], tools: Tools) -> dict[str, Any]:
    for number, call in enumerate(delta.get("tool_calls", ())):
        call["index"] = number
    finish = "tool_calls" if delta.get("tool_calls") else piece.get("finish_reason")
    return {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
