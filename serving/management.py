"""/api/2.0/serving-endpoints: create, update, describe, list and delete endpoints."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from platform import python_version
from typing import Any

from fastapi import APIRouter, Response

from serving.context import Endpoints
from serving.describe import describe
from serving.error_replies import ERRORS
from serving.invocations import PAYLOAD
from serving.launching import log_path
from serving.metrics import entities_exposition
from serving.process import tail
from serving.replies import (
    EndpointList,
    EndpointReply,
    Logs,
    NotificationsReply,
    RateLimitsReply,
    TagsReply,
)
from serving.schemas import (
    AiGateway,
    EndpointConfig,
    EndpointCreate,
    NotificationsPatch,
    RateLimitsPut,
    TagsPatch,
    TelemetryPatch,
)
from serving.supervisor import Supervisor

PREFIX = "/api/2.0/serving-endpoints"
router = APIRouter(prefix=PREFIX, tags=["endpoints"], responses=ERRORS)
get, post, put, patch = (
    partial(method, response_model_exclude_none=True)
    for method in (router.get, router.post, router.put, router.patch)
)


@get("/", include_in_schema=False)
@get("", summary="List endpoints")
async def list_endpoints(endpoints: Endpoints) -> EndpointList:
    """Every endpoint, oldest first."""
    return EndpointList(endpoints=[describe(endpoint) for endpoint in endpoints.endpoints.values()])


@post("/", include_in_schema=False)
@post("", summary="Create an endpoint")
async def create_endpoint(request: EndpointCreate, endpoints: Endpoints) -> EndpointReply:
    """Answers at once; `state` tells when it is ready."""
    return describe(await endpoints.create(request))


@get("/{name}", summary="Describe an endpoint")
async def get_endpoint(name: str, endpoints: Endpoints) -> EndpointReply:
    """Its state, what it serves, and what is being rolled out."""
    return describe(endpoints.get(name))


@router.delete("/{name}", summary="Delete an endpoint")
async def delete_endpoint(name: str, endpoints: Endpoints) -> dict[str, Any]:
    """Ends its processes before it answers."""
    await endpoints.delete(name)
    return {}


@put("/{name}/config", summary="Update what an endpoint serves")
async def update_config(name: str, config: EndpointConfig, endpoints: Endpoints) -> EndpointReply:
    """The running config serves until the new one is ready; 409 while an update is under way."""
    return describe(await endpoints.update_config(name, config))


@patch("/{name}/tags", summary="Add and delete tags")
async def patch_tags(name: str, patch: TagsPatch, endpoints: Endpoints) -> TagsReply:
    """Answers with all tags."""
    return TagsReply(tags=endpoints.patch_tags(name, patch))


@put("/{name}/rate-limits", summary="Replace the rate limits")
async def put_rate_limits(name: str, put: RateLimitsPut, endpoints: Endpoints) -> RateLimitsReply:
    """Calls a minute, for the endpoint or for each user."""
    limits = put.rate_limits or []
    endpoints.change(name, rate_limits=limits)
    return RateLimitsReply(rate_limits=limits)


@put("/{name}/ai-gateway", summary="Replace the AI Gateway settings")
async def put_ai_gateway(name: str, gateway: AiGateway, endpoints: Endpoints) -> AiGateway:
    """All is kept; the local endpoint enforces the rate limits."""
    endpoints.change(name, ai_gateway=gateway)
    return gateway


@patch("/{name}/notifications", summary="Replace who is told of changes")
async def patch_notifications(
    name: str, patch: NotificationsPatch, endpoints: Endpoints
) -> NotificationsReply:
    """Kept and shown; nobody is written to."""
    endpoints.change(name, email_notifications=patch.email_notifications)
    return NotificationsReply(name=name, email_notifications=patch.email_notifications)


@patch("/{name}/telemetry-config", summary="Replace where telemetry goes")
async def patch_telemetry(name: str, patch: TelemetryPatch, endpoints: Endpoints) -> EndpointReply:
    """Kept and shown; /metrics and the logs are here."""
    return describe(endpoints.change(name, telemetry_config=patch.telemetry_config))


@router.get(
    "/{name}/metrics", summary="Prometheus metrics of one endpoint", response_class=Response
)
async def export_metrics(name: str, endpoints: Endpoints) -> Response:
    """The text exposition format."""
    text = await entities_exposition([endpoints.get(name)])
    return Response(text, media_type="text/plain; version=0.0.4")


@router.get("/{name}/openapi", summary="How to query one endpoint")
async def query_schema(name: str, endpoints: Endpoints) -> dict[str, Any]:
    """An OpenAPI document of its invocations."""
    endpoints.get(name)
    operation = {
        "requestBody": {"required": True, "content": {"application/json": {"schema": PAYLOAD}}},
        "responses": {"200": {"description": "predictions, one a row"}},
    }
    path = f"/serving-endpoints/{name}/invocations"
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": "1"},
        "paths": {path: {"post": operation}},
    }


@router.get("/{name}/served-models/{served_model}/logs", summary="What an entity wrote")
async def logs(name: str, served_model: str, endpoints: Endpoints) -> Logs:
    """The end of its log, 64 KiB at most."""
    return Logs(logs=tail(_log_of(endpoints, name, served_model)))


@router.get("/{name}/served-models/{served_model}/build-logs", summary="How an entity was built")
async def build_logs(name: str, served_model: str, endpoints: Endpoints) -> Logs:
    """No image is built here: an entity runs in the server's own environment."""
    _log_of(endpoints, name, served_model)
    return Logs(logs=f"No image is built: it runs in this server's Python {python_version()}.")


def _log_of(endpoints: Supervisor, name: str, served_model: str) -> Path:
    endpoint = endpoints.get(name)
    if served_model not in endpoint.pending:
        endpoint.named(served_model)
    return log_path(endpoints.settings.state_dir, name, served_model)
