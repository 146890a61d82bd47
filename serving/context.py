"""What routes need from the application they run in."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from serving.metrics import ServerMetrics
from serving.supervisor import Supervisor


def supervisor_of(request: Request) -> Supervisor:
    """The application's supervisor."""
    return cast(Supervisor, request.app.state.supervisor)


def metrics_of(request: Request) -> ServerMetrics:
    """The application's counters."""
    return cast(ServerMetrics, request.app.state.metrics)


Endpoints = Annotated[Supervisor, Depends(supervisor_of)]
Metrics = Annotated[ServerMetrics, Depends(metrics_of)]
