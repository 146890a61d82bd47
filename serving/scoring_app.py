"""MLflow's scoring app for one loaded model, plus streaming, metrics, health and clean errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import pandas as pd
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from mlflow.pyfunc import PyFuncModel, scoring_server
from prometheus_client import REGISTRY, generate_latest

from serving import error_replies, openai_api
from serving.auth import BearerAuth
from serving.errors import ApiError
from serving.hang_up import as_caller
from serving.limits import BodyLimit
from serving.mlflow_errors import clean, from_exception
from serving.settings import Limits
from serving.sse import event_stream

JSON = "application/json"
MAX_THREADS = 1088  # the largest provisioned concurrency, and some for health and metrics
router = APIRouter()


def build_scoring_app(
    model: PyFuncModel, tokens: Sequence[str] = (), *, open_metrics: bool = False
) -> FastAPI:
    """The application of one entity process. `tokens` empty: the socket or a proxy guards it."""
    app = FastAPI(
        title="Formline served entity", docs_url=None, redoc_url=None, lifespan=_thread_a_call
    )
    app.state.model = model
    app.state.mlflow = httpx.AsyncClient(
        transport=httpx.ASGITransport(app=scoring_server.init(model)),
        base_url="http://mlflow",
        timeout=httpx.Timeout(None),  # MLflow's app has its own
    )
    error_replies.install(app)
    app.include_router(router)
    app.include_router(openai_api.router)
    app.add_middleware(BodyLimit, limit=Limits.body_bytes)
    open_paths = {"/ping", "/metrics"} if open_metrics else {"/ping"}
    app.add_middleware(BearerAuth, tokens=tokens, open_paths=open_paths)
    return app


@asynccontextmanager
async def _thread_a_call(app: FastAPI) -> AsyncIterator[None]:
    """MLflow predicts in the loop's default threads; there must be one for every call at once."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_THREADS, "predict"))
    yield


@router.post("/invocations")
async def invocations(request: Request) -> Response:
    """MLflow's own route; a JSON payload with `"stream": true` is answered with events."""
    body = await request.body()
    content_type = request.headers.get("content-type", JSON)
    model = request.app.state.model
    payload = _streaming_payload(body, content_type)
    if payload is not None:
        return await event_stream(request, model, lambda: _stream(model, payload))
    async with as_caller(request, model):
        return await _score(request.app.state.mlflow, body, content_type)


@router.get("/ping")
@router.get("/health")
async def health(request: Request) -> Response:
    """200 while calls can be answered, now or after a rebuild; 503 once only a restart helps."""
    report = getattr(request.app.state.model.unwrap_python_model(), "health", None)
    state = report() if callable(report) else None
    if state is None or getattr(state, "alive", True):
        return JSONResponse({"status": "ok"})
    return ApiError(503, f"The engine is down: {getattr(state, 'detail', state)}").response()


@router.get("/version")
async def version(request: Request) -> Response:
    """MLflow's version, as its scoring app says it."""
    reply = await request.app.state.mlflow.get("/version")
    return Response(reply.content, reply.status_code, media_type=JSON)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """All Prometheus metrics of this process; a model that has more than the default tells them."""
    text = getattr(request.app.state.model.unwrap_python_model(), "metrics_text", None)
    content = text() if callable(text) else generate_latest(REGISTRY)
    return Response(content, media_type="text/plain; version=0.0.4")


async def _score(mlflow_app: httpx.AsyncClient, body: bytes, content_type: str) -> Response:
    try:
        reply = await mlflow_app.post(
            "/invocations", content=body, headers={"content-type": content_type}
        )
    except Exception as error:  # noqa: BLE001 - whatever MLflow's parsing lets through
        return from_exception(error).response()
    if reply.status_code == 200:
        return Response(reply.content, media_type=reply.headers.get("content-type", JSON))
    return clean(reply.status_code, reply.text).response()


def _streaming_payload(body: bytes, content_type: str) -> dict[str, Any] | None:
    """The payload without `stream`, if it asks for a stream; None for all else."""
    if b'"stream"' not in body or not content_type.startswith(JSON):
        return None
    try:
        payload = json.loads(body)
    except ValueError:
        return None
    if not isinstance(payload, dict) or payload.pop("stream", False) is not True:
        return None
    return payload


def _stream(model: PyFuncModel, payload: dict[str, Any]) -> Iterator[Any]:
    """The chunks of the one row of `payload`, which MLflow's scoring app parses."""
    schema = model.metadata.get_input_schema()
    parsed = scoring_server._parse_json_data(payload, model.metadata, schema)
    if isinstance(parsed.data, pd.DataFrame) and len(parsed.data) != 1:
        raise ApiError(400, f"stream: a streamed call takes one row, got {len(parsed.data)}.")
    return cast(Iterator[Any], model.predict_stream(parsed.data, params=parsed.params))
