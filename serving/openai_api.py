"""OpenAI's chat and text completions over the loaded model's own rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pandas as pd
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from mlflow.pyfunc import PyFuncModel

from serving.hang_up import as_caller
from serving.mlflow_errors import from_exception
from serving.openai_reply import chat_reply, text_reply
from serving.openai_request import ChatRequest, CompletionRequest, chat_row, completion_rows
from serving.openai_stream import chat_chunks, text_chunks
from serving.openai_tools import Tools
from serving.sse import event_stream

router = APIRouter()


@router.post("/v1/chat/completions")
async def chat(request: ChatRequest, http: Request) -> Response:
    """One conversation, one row; its `n` answers are the choices."""
    model = http.app.state.model
    tools = Tools.of(request)
    row = chat_row(request, tools)
    if request.stream:
        return await event_stream(http, model, lambda: chat_chunks(model, row, request, tools))
    answers = await _predict(http, [row])
    return JSONResponse(chat_reply(request, answers[0], tools))


@router.post("/v1/completions")
async def complete(request: CompletionRequest, http: Request) -> Response:
    """One row a prompt; choices are numbered over all of them."""
    model = http.app.state.model
    rows = completion_rows(request)
    if request.stream:
        return await event_stream(http, model, lambda: text_chunks(model, rows, request))
    return JSONResponse(text_reply(request, await _predict(http, rows)))


async def _predict(http: Request, rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """The model's answers, one a row, over the same path as /invocations. Raises ApiError."""
    frame = pd.DataFrame(rows, dtype=object)
    model: PyFuncModel = http.app.state.model
    try:
        async with as_caller(http, model):
            answers = await asyncio.to_thread(model.predict, frame)
    except Exception as error:
        raise from_exception(error) from error
    return cast(list[Mapping[str, Any]], answers.to_dict("records"))
