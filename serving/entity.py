"""The process of one served entity: load a model version, then answer over HTTP.

    python -m serving.entity --model-uri models:/NAME/VERSION --port 8080

The local endpoint starts one of these an entity, on a Unix socket; a container runs one alone.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn
from mlflow.pyfunc import PyFuncModel

from serving.loading import load_served
from serving.process import FAILURE_PREFIX
from serving.scoring_app import build_scoring_app
from serving.settings import Limits, is_loopback

PARENT_GRACE_S = 10.0
DRAINED_S = 10  # the parent stops us only once our calls have ended
cli = typer.Typer(add_completion=False)


@cli.command()
def serve(
    model_uri: Annotated[str, typer.Option(help="models:/NAME/VERSION, or a model's directory.")],
    socket: Annotated[Path | None, typer.Option(help="Listen on this Unix socket.")] = None,
    host: Annotated[str, typer.Option(help="Otherwise listen on this address ...")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="... and port.")] = 8080,
    token: Annotated[
        list[str] | None,
        typer.Option(envvar="FORMLINE_SERVING_TOKENS", help="Accepted bearer tokens (TCP only)."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option(help="Listen beyond loopback without tokens: something in front checks.")
    ] = False,
    open_metrics: Annotated[
        bool, typer.Option(help="Show /metrics without a token: numbers only, no rows.")
    ] = False,
    execution_limit: Annotated[
        float, typer.Option(help="Seconds a request may take.")
    ] = Limits.execution_s,
    watch_parent: Annotated[
        bool, typer.Option(help="End when standard input ends, as it does with the parent.")
    ] = False,
) -> None:
    """Load one model version and serve it with MLflow's scoring app and our additions.

    On SIGTERM calls under way may end, within the execution limit, before the process does.
    """
    if socket is None and not (is_loopback(host) or token or insecure):
        raise typer.BadParameter(
            f"listening on {host} needs --token or --insecure", param_hint="--host"
        )
    if watch_parent:
        threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    model = _load(model_uri, execution_limit)
    tokens = () if socket else tuple(token or ())
    app = build_scoring_app(model, tokens, open_metrics=open_metrics)
    place: dict[str, Any] = {"uds": str(socket)} if socket else {"host": host, "port": port}
    grace_s = DRAINED_S if socket else math.ceil(execution_limit)
    uvicorn.run(app, **place, log_level="warning", timeout_graceful_shutdown=grace_s)


def _load(model_uri: str, execution_s: float) -> PyFuncModel:
    """The loaded model; a failure ends the process with its reason as the log's last line."""
    try:
        return load_served(model_uri, execution_s)
    except Exception as error:  # noqa: BLE001 - a model's own code may raise anything
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"{FAILURE_PREFIX}{reason}", file=sys.stderr, flush=True)
        sys.exit(3)


def _end_with_parent() -> None:
    """The parent holds the other end of our standard input, and never writes to it."""
    while os.read(0, 1024):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PARENT_GRACE_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    cli()
