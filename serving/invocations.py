"""POST /serving-endpoints/NAME/invocations: a caller's rows, in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from serving.auth import caller_of
from serving.context import Endpoints, Metrics
from serving.endpoint import Endpoint
from serving.error_replies import ERRORS
from serving.hang_up import while_connected
from serving.metrics import ServerMetrics
from serving.relay import relay
from serving.served_entity import ServedEntity

router = APIRouter(tags=["serving"], responses=ERRORS)
PAYLOAD = {
    "type": "object",
    "description": "One of the four payload forms, and params; `stream: true` for events.",
    "properties": {
        "inputs": {},
        "instances": {"type": "array"},
        "dataframe_records": {"type": "array", "items": {"type": "object"}},
        "dataframe_split": {"type": "object"},
        "params": {"type": "object"},
        "stream": {"type": "boolean"},
    },
}
REQUEST_BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": PAYLOAD}}}
}


@router.post(
    "/serving-endpoints/{name}/invocations",
    openapi_extra=REQUEST_BODY,
    summary="Score rows, or stream one",
)
async def invoke(name: str, request: Request, endpoints: Endpoints, metrics: Metrics) -> Response:
    """Answers with what MLflow's scoring app answers: `{"predictions": [...]}`."""
    endpoint = endpoints.get(name)
    return await forward(request, endpoint, None, "/invocations", metrics, await request.body())


@router.post(
    "/serving-endpoints/{name}/served-models/{served_model}/invocations",
    openapi_extra=REQUEST_BODY,
    summary="Score rows on one served entity, whatever its share of the traffic",
)
async def invoke_entity(
    name: str, served_model: str, request: Request, endpoints: Endpoints, metrics: Metrics
) -> Response:
    """As `invoke`, on the entity named."""
    endpoint = endpoints.get(name)
    entity = endpoint.named(served_model)
    return await forward(request, endpoint, entity, "/invocations", metrics, await request.body())


async def forward(
    request: Request,
    endpoint: Endpoint,
    entity: ServedEntity | None,
    path: str,
    metrics: ServerMetrics,
    body: bytes,
) -> Response:
    """Check the rate limits, choose the entity, and relay. Raises ApiError."""
    async with metrics.measured(endpoint.record.name) as status:
        caller = caller_of(request.headers, request.client.host if request.client else "")
        endpoint.rate_limiter.check(endpoint.rate_limits, caller)
        chosen = entity or endpoint.pick()
        limit_s = request.app.state.settings.limits.execution_s
        answer = relay(chosen, path, body, request.headers, limit_s)
        response = await while_connected(request, answer)
        status.append(response.status_code)
    return response
