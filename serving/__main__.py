"""The command line: `python -m serving --port 8080`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from serving.app import build_app
from serving.settings import Limits, Settings

SHUTDOWN_S = 30
cli = typer.Typer(add_completion=False)


@cli.command()
def serve(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8080,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback a token is required.")
    ] = "127.0.0.1",
    state_dir: Annotated[Path, typer.Option(help="Endpoints and logs are kept here.")] = Path(
        ".formline"
    ),
    tracking_uri: Annotated[str | None, typer.Option(envvar="MLFLOW_TRACKING_URI")] = None,
    registry_uri: Annotated[str | None, typer.Option(envvar="MLFLOW_REGISTRY_URI")] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(envvar="FORMLINE_SERVING_TOKENS", help="Accepted bearer tokens."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="More accepted tokens, one a line.")
    ] = None,
    scale_to_zero_after: Annotated[
        float, typer.Option(help="Idle seconds until an entity sleeps.")
    ] = Limits.idle_s,
    execution_limit: Annotated[
        float, typer.Option(help="Seconds a request may take.")
    ] = Limits.execution_s,
) -> None:
    """Serve registered versions over the Databricks serving REST API on this machine."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a call is the access log's job
    limits = Limits(idle_s=scale_to_zero_after, execution_s=execution_limit)
    settings = Settings(
        state_dir=state_dir.resolve(),
        host=host,
        port=port,
        tracking_uri=tracking_uri,
        registry_uri=registry_uri,
        tokens=(*(token or ()), *read_tokens(token_file)),
        limits=limits,
    )
    if not settings.loopback_only and not settings.tokens:
        raise typer.BadParameter(
            f"listening on {host} needs --token or --token-file", param_hint="--host"
        )
    typer.echo(
        f"Formline serves on http://{host}:{port} (set DATABRICKS_HOST to it); state in {state_dir}"
    )
    run(settings)


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """The tokens of a file, one a line; blank lines and lines that start with # do not count."""
    lines = path.read_text().splitlines() if path else []
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def run(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM; then let calls finish, end every process and return."""
    uvicorn.run(
        build_app(settings),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


if __name__ == "__main__":
    cli()
