"""/v1 for OpenAI clients: `model` is the name of an endpoint."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from serving.context import Endpoints, Metrics
from serving.error_replies import ERRORS
from serving.invocations import forward
from serving.openai_request import ChatRequest, CompletionRequest
from serving.replies import Reply
from serving.store import EndpointRecord

router = APIRouter(tags=["openai"], responses=ERRORS)


class ModelCard(Reply):
    id: str
    object: str = "model"
    created: int
    owned_by: str

    @classmethod
    def of(cls, record: EndpointRecord) -> ModelCard:
        return cls(id=record.name, created=record.created_ms // 1000, owned_by=record.creator)


class ModelList(Reply):
    object: str = "list"
    data: list[ModelCard]


@router.get("/v1/models", summary="Endpoints as models")
async def list_models(endpoints: Endpoints) -> ModelList:
    """One model an endpoint."""
    return ModelList(data=[ModelCard.of(each.record) for each in endpoints.endpoints.values()])


@router.get("/v1/models/{model}", summary="One endpoint as a model")
async def get_model(model: str, endpoints: Endpoints) -> ModelCard:
    """404 when there is no such endpoint."""
    return ModelCard.of(endpoints.get(model).record)


@router.post("/serving-endpoints/chat/completions", include_in_schema=False)
@router.post("/v1/chat/completions", summary="Chat completion")
async def chat(
    chat: ChatRequest, request: Request, endpoints: Endpoints, metrics: Metrics
) -> Response:
    """`response_format`, `tools` and `stream` as OpenAI has them."""
    endpoint = endpoints.get(chat.model)
    body = await request.body()
    return await forward(request, endpoint, None, "/v1/chat/completions", metrics, body)


@router.post("/serving-endpoints/completions", include_in_schema=False)
@router.post("/v1/completions", summary="Text completion")
async def complete(
    completion: CompletionRequest, request: Request, endpoints: Endpoints, metrics: Metrics
) -> Response:
    """One prompt, or a list of them."""
    endpoint = endpoints.get(completion.model)
    body = await request.body()
    return await forward(request, endpoint, None, "/v1/completions", metrics, body)
