"""The status page at /, what it reads, and /metrics."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, PlainTextResponse

from serving.context import Endpoints, Metrics
from serving.describe import describe
from serving.endpoint import Endpoint
from serving.error_replies import ERRORS
from serving.errors import ApiError
from serving.metrics import ServerMetrics, read_counter, scrape
from serving.replies import EndpointReply, Reply

router = APIRouter(tags=["status"], responses=ERRORS)
open_router = APIRouter(tags=["status"])  # says nothing about endpoints, and needs no token
STATIC = Path(__file__).parent / "static"
TOKENS, COMPLETION = "formline_tokens_total", {"kind": "completion"}
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


class EndpointStatus(Reply):
    """One endpoint with its running totals; a page that polls makes rates of them."""

    endpoint: EndpointReply
    requests_total: float
    completion_tokens_total: float
    in_flight: int
    restarts: int


class Status(Reply):
    endpoints: list[EndpointStatus]


@open_router.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """The page itself; it asks for a token when the server wants one."""
    return FileResponse(STATIC / "status.html", headers={"Content-Security-Policy": CONTENT_POLICY})


@open_router.get("/static/{name}", include_in_schema=False)
async def static(name: str) -> Response:
    """The page's script and style, and nothing else."""
    if name not in ("status.js", "status.css"):
        raise ApiError(404, f"There is no {name!r} here.")
    return FileResponse(STATIC / name)


@open_router.get("/.well-known/databricks-config", include_in_schema=False)
async def host_metadata() -> dict[str, str]:
    """What Databricks' clients look for first; there is no OAuth here, only bearer tokens."""
    return {"oidc_endpoint": ""}


@open_router.get("/health", summary="Whether the server runs")
async def health() -> dict[str, str]:
    """Says nothing about single endpoints."""
    return {"status": "ok"}


@router.get(
    "/api/2.0/formline/status",
    summary="All endpoints with their totals",
    response_model_exclude_none=True,
)
async def read_status(endpoints: Endpoints, metrics: Metrics) -> Status:
    """What the status page shows."""
    live = list(endpoints.endpoints.values())
    return Status(endpoints=[await _status(endpoint, metrics) for endpoint in live])


@router.get(
    "/metrics", summary="Prometheus metrics of everything", response_class=PlainTextResponse
)
async def read_metrics(endpoints: Endpoints, metrics: Metrics) -> Response:
    """The text exposition format."""
    text = await metrics.exposition(endpoints.endpoints.values())
    return Response(text, media_type="text/plain; version=0.0.4")


async def _status(endpoint: Endpoint, metrics: ServerMetrics) -> EndpointStatus:
    entities = list(endpoint.active.values())
    tokens = [read_counter(await scrape(entity), TOKENS, COMPLETION) for entity in entities]
    return EndpointStatus(
        endpoint=describe(endpoint),
        requests_total=metrics.total(endpoint.record.name),
        completion_tokens_total=sum(tokens),
        in_flight=sum(entity.in_flight for entity in entities),
        restarts=sum(entity.restarts for entity in entities),
    )
