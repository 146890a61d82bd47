"""/v1 for OpenAI clients: `model` is the name of an endpoint."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request, Response

from serving.context import Endpoints, Metrics
from serving.errors import ApiError
from serving.invocations import ERRORS, forward
from serving.schemas import Reply

router = APIRouter(tags=["openai"], responses=ERRORS)
BODY = {"type": "object", "required": ["model"], "properties": {"model": {"type": "string"}}}
REQUEST_BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": BODY}}}
}


class ModelCard(Reply):
    id: str
    object: str = "model"
    created: int
    owned_by: str


class ModelList(Reply):
    object: str = "list"
    data: list[ModelCard]


@router.get("/v1/models", summary="Endpoints as models")
async def list_models(endpoints: Endpoints) -> ModelList:
    """One model an endpoint."""
    records = [endpoint.record for endpoint in endpoints.endpoints.values()]
    cards = [
        ModelCard(id=r.name, created=r.created_ms // 1000, owned_by=r.creator) for r in records
    ]
    return ModelList(data=cards)


@router.get("/v1/models/{model}", summary="One endpoint as a model")
async def get_model(model: str, endpoints: Endpoints) -> ModelCard:
    """404 when there is no such endpoint."""
    record = endpoints.get(model).record
    return ModelCard(id=record.name, created=record.created_ms // 1000, owned_by=record.creator)


@router.post("/serving-endpoints/chat/completions", include_in_schema=False)
@router.post("/v1/chat/completions", openapi_extra=REQUEST_BODY, summary="Chat completion")
async def chat(request: Request, endpoints: Endpoints, metrics: Metrics) -> Response:
    """`response_format`, `tools` and `stream` as OpenAI has them."""
    return await _forward(request, "/v1/chat/completions", endpoints, metrics)


@router.post("/serving-endpoints/completions", include_in_schema=False)
@router.post("/v1/completions", openapi_extra=REQUEST_BODY, summary="Text completion")
async def complete(request: Request, endpoints: Endpoints, metrics: Metrics) -> Response:
    """One prompt, or a list of them."""
    return await _forward(request, "/v1/completions", endpoints, metrics)


async def _forward(request: Request, path: str, endpoints: Endpoints, metrics: Metrics) -> Response:
    body = await request.body()
    endpoint = endpoints.get(_model_of(body))
    return await forward(request, endpoint, None, path, metrics, body)


def _model_of(body: bytes) -> str:
    try:
        payload: Any = json.loads(body)
    except ValueError:
        raise ApiError(400, "The body is not JSON.") from None
    model = payload.get("model") if isinstance(payload, dict) else None
    if not isinstance(model, str):
        raise ApiError(400, "model: name an endpoint; GET /v1/models lists them.")
    return model
