"""Turns a registered model version into a serving endpoint: on Databricks, or on this machine.

    python deploy_endpoint.py deploy NAME --model catalog.schema.model --version 3
    python deploy_endpoint.py traffic NAME 3=90 4=10
    python deploy_endpoint.py rollback NAME

DATABRICKS_HOST and DATABRICKS_TOKEN say where; http://127.0.0.1:PORT is a local endpoint
(`make serve`). The registry is MLflow's own setting. As functions: `deploy`, `split_traffic`,
`roll_back`, `delete` and `DesiredEndpoint`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

import mlflow
import typer
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.service.serving import AiGatewayRateLimitKey
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deploying.apply import (
    DEFAULT_TIMEOUT_S,
    Outcome,
    delete,
    deploy,
    find,
    roll_back,
    split_traffic,
)
from deploying.desired import DesiredEndpoint, InferenceTable, RateLimit
from deploying.history import good_versions
from deploying.plan import plan
from deploying.preflight import Check, failures, preflight
from deploying.registered import resolve_version
from deploying.watch import DeployFailed, progress
from model.errors import ConfigError, FormlineError

__all__ = [
    "DeployFailed",
    "DesiredEndpoint",
    "InferenceTable",
    "Outcome",
    "RateLimit",
    "delete",
    "deploy",
    "preflight",
    "roll_back",
    "split_traffic",
]

MAX_TIMEOUT_S = 7200.0
cli = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
console = Console(stderr=True, highlight=False)

Timeout = Annotated[float, typer.Option(help="Seconds to wait, 7200 at most.", max=MAX_TIMEOUT_S)]
RegistryUri = Annotated[str | None, typer.Option(help="MLflow registry, if not MLflow's default.")]
Pairs = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Repeatable.")]


@cli.command("deploy")
def deploy_command(
    name: Annotated[str, typer.Argument(help="The endpoint's name.")],
    model: Annotated[
        str, typer.Option(help="Registered model; catalog.schema.model in Unity Catalog.")
    ],
    version: Annotated[str, typer.Option(help="A number, latest, or @alias.")] = "latest",
    traffic: Annotated[
        list[str] | None, typer.Option(metavar="VERSION=PERCENT", help="Several versions.")
    ] = None,
    workload_type: Annotated[
        str, typer.Option(help="CPU, GPU_SMALL, GPU_MEDIUM, ...")
    ] = "GPU_MEDIUM",
    workload_size: Annotated[str, typer.Option(help="Small, Medium or Large.")] = "Small",
    min_concurrency: Annotated[
        int | None, typer.Option(help="Provisioned, instead of a size.")
    ] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(help="Provisioned, instead of a size.")
    ] = None,
    scale_to_zero: Annotated[bool, typer.Option(help="Hold no machine while nobody calls.")] = True,
    env: Pairs = None,
    tag: Pairs = None,
    inference_table: Annotated[
        str | None, typer.Option(metavar="CATALOG.SCHEMA[.PREFIX]", help="Log calls there.")
    ] = None,
    rate_limit: Annotated[
        list[str] | None, typer.Option(metavar="[endpoint=|user=]CALLS", help="Calls a minute.")
    ] = None,
    usage_tracking: Annotated[bool, typer.Option(help="AI Gateway usage tracking.")] = False,
    route_optimized: Annotated[bool, typer.Option(help="Only at creation.")] = False,
    description: Annotated[str | None, typer.Option()] = None,
    registry_uri: RegistryUri = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    wait: Annotated[bool, typer.Option(help="Wait until it is ready.")] = True,
    dry_run: Annotated[
        bool, typer.Option(help="Print the exact requests and send nothing.")
    ] = False,
    check: Annotated[bool, typer.Option(help="Run the pre-flight checks first.")] = True,
    check_requirements: Annotated[bool, typer.Option(help="Ask a package index.")] = True,
) -> None:
    """Create or update an endpoint; a second call with the same options changes nothing."""
    with reported_errors():
        choose_registry(registry_uri)
        desired = DesiredEndpoint.check(
            name=name,
            entity_name=model,
            traffic=read_traffic(model, traffic) or {resolve_version(model, version): 100},
            workload_type=workload_type,
            workload_size=None if max_concurrency else workload_size,
            min_provisioned_concurrency=min_concurrency,
            max_provisioned_concurrency=max_concurrency,
            scale_to_zero=scale_to_zero,
            environment=read_pairs(env),
            tags=read_pairs(tag),
            inference_table=read_table(inference_table),
            rate_limits=tuple(map(read_rate_limit, rate_limit or ())),
            usage_tracking=usage_tracking,
            route_optimized=route_optimized,
            description=description,
        )
        if dry_run:
            print_plan(desired)
            return
        client = workspace()
        if check:
            refuse_failures(
                preflight(desired, local=is_local(client), check_requirements=check_requirements)
            )
        outcome = deploy(client, desired, timeout_s=timeout, wait=wait, report=tell)
        print_outcome(outcome)


@cli.command("traffic")
def traffic_command(
    name: str,
    shares: Annotated[list[str], typer.Argument(metavar="VERSION=PERCENT...")],
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Split the traffic between versions, with the current settings."""
    with reported_errors():
        split = {version: whole(share) for version, share in read_pairs(shares).items()}
        print_outcome(split_traffic(workspace(), name, split, timeout_s=timeout, report=tell))


@cli.command("rollback")
def rollback_command(
    name: str,
    to_version: Annotated[str | None, typer.Option(help="Instead of the last good one.")] = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Serve the last good version before the current one."""
    with reported_errors():
        outcome = roll_back(workspace(), name, version=to_version, timeout_s=timeout, report=tell)
        print_outcome(outcome)


@cli.command("describe")
def describe_command(
    name: str,
    as_json: Annotated[bool, typer.Option("--json", help="All that the API says.")] = False,
) -> None:
    """Show an endpoint: state, versions, traffic, tags."""
    with reported_errors():
        endpoint = find(workspace(), name)
        if endpoint is None:
            raise ConfigError(f"there is no endpoint {name!r}")
        typer.echo(json.dumps(endpoint, indent=2) if as_json else describe(endpoint))


@cli.command("delete")
def delete_command(name: str) -> None:
    """Delete an endpoint."""
    with reported_errors():
        typer.echo(f"{name}: {'deleted' if delete(workspace(), name) else 'there was none'}")


@cli.command("preflight")
def preflight_command(
    model: Annotated[str, typer.Argument(help="Registered model.")],
    version: Annotated[str, typer.Option(help="A number, latest, or @alias.")] = "latest",
    workload_type: Annotated[str, typer.Option()] = "GPU_MEDIUM",
    registry_uri: RegistryUri = None,
    check_requirements: Annotated[bool, typer.Option(help="Ask a package index.")] = True,
) -> None:
    """Check a version for a workload type, and deploy nothing."""
    with reported_errors():
        choose_registry(registry_uri)
        desired = DesiredEndpoint.check(
            name="preflight",
            entity_name=model,
            traffic={resolve_version(model, version): 100},
            workload_type=workload_type,
        )
        refuse_failures(preflight(desired, local=False, check_requirements=check_requirements))


def tell(line: str) -> None:
    """A line of progress."""
    console.print(line, markup=False, soft_wrap=True)


def workspace() -> WorkspaceClient:
    """The client for DATABRICKS_HOST. Raises ConfigError when it is not configured."""
    try:
        return WorkspaceClient()
    except ValueError as error:
        raise ConfigError(
            "no workspace is configured: set DATABRICKS_HOST and DATABRICKS_TOKEN (for a local "
            f"endpoint http://127.0.0.1:8080 and any token). {error}"
        ) from None


def is_local(client: WorkspaceClient) -> bool:
    """Whether the target is an endpoint on this machine."""
    return urlsplit(client.config.host or "").hostname in ("127.0.0.1", "localhost", "::1")


def choose_registry(uri: str | None) -> None:
    """Look for versions in another registry than MLflow's default."""
    if uri:
        mlflow.set_registry_uri(uri)


def read_pairs(pairs: Iterable[str] | None) -> dict[str, str]:
    """["K=V"] as a dict. Raises ConfigError."""
    result = {}
    for pair in pairs or ():
        key, found, value = pair.partition("=")
        if not found or not key:
            raise ConfigError(f"{pair!r}: write KEY=VALUE")
        result[key] = value
    return result


def read_traffic(model: str, shares: Iterable[str] | None) -> dict[str, int]:
    """["3=90", "@champion=10"] as version -> percent."""
    return {resolve_version(model, v): whole(share) for v, share in read_pairs(shares).items()}


def whole(text: str) -> int:
    """A percentage. Raises ConfigError."""
    if not text.isdigit():
        raise ConfigError(f"{text!r} is no whole percentage")
    return int(text)


def read_table(text: str | None) -> InferenceTable | None:
    """`catalog.schema` or `catalog.schema.prefix`. Raises ConfigError."""
    if text is None:
        return None
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(parts):
        raise ConfigError(
            f"inference table {text!r}: write CATALOG.SCHEMA or CATALOG.SCHEMA.PREFIX"
        )
    prefix = parts[2] if len(parts) == 3 else None
    return InferenceTable(catalog=parts[0], schema_name=parts[1], prefix=prefix)


def read_rate_limit(text: str) -> RateLimit:
    """`100`, `endpoint=100` or `user=100`. Raises ConfigError."""
    key, found, calls = text.partition("=")
    key, calls = (key, calls) if found else ("endpoint", key)
    if key not in ("endpoint", "user") or not calls.isdigit() or int(calls) < 1:
        raise ConfigError(f"rate limit {text!r}: write CALLS, endpoint=CALLS or user=CALLS")
    return RateLimit(calls=int(calls), per=AiGatewayRateLimitKey(key))


def print_plan(desired: DesiredEndpoint) -> None:
    """The requests that would be sent now, as JSON; without a workspace, those of a creation."""
    try:
        current = find(workspace(), desired.name)
    except ConfigError as error:
        console.print(f"[yellow]taken as new:[/] {escape(error.message)}", soft_wrap=True)
        current = None
    steps = plan(desired, current)
    typer.echo(
        json.dumps([{"method": s.method, "path": s.path, "body": s.body} for s in steps], indent=2)
    )


def refuse_failures(checks: list[Check]) -> None:
    """Print the findings. Raises ConfigError when one of them would fail the deployment."""
    colours = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}
    table = Table("check", "verdict", "detail", title="pre-flight")
    for check in checks:
        table.add_row(
            check.name, f"[{colours[check.verdict]}]{check.verdict}[/]", escape(check.detail)
        )
    console.print(table)
    failed = failures(checks)
    if failed:
        details = "; ".join(f"{check.name}: {check.detail}" for check in failed)
        raise ConfigError(f"pre-flight: {details}. --no-check sends it all the same")


def print_outcome(outcome: Outcome) -> None:
    """What was sent, and the endpoint now."""
    sent = ", ".join(f"{step.method} {step.path}" for step in outcome.steps)
    console.print(f"sent: {sent}" if sent else "unchanged: nothing had to be sent", soft_wrap=True)
    typer.echo(describe(outcome.endpoint))


def describe(endpoint: dict[str, Any]) -> str:
    """A few lines: state, what is served with its share, tags and good versions."""
    config = endpoint.get("config") or {}
    routes = (config.get("traffic_config") or {}).get("routes") or ()
    shares = {
        r.get("served_entity_name") or r.get("served_model_name"): r["traffic_percentage"]
        for r in routes
    }
    lines = [f"{endpoint['name']}: {progress(endpoint)}"]
    for entity in cast(list[dict[str, Any]], config.get("served_entities") or []):
        served = f"{entity['entity_name']} version {entity['entity_version']}"
        lines.append(f"  {shares.get(entity['name'], 0):3d} %  {served} as {entity['name']}")
    if good := good_versions(endpoint):
        lines.append(f"  good versions, newest first: {', '.join(good)}")
    return "\n".join(lines)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Errors raised on purpose, and the API's own, end the command with their message alone."""
    try:
        yield
    except FormlineError as error:
        console.print(f"[red]{error.code}[/] {escape(error.message)}", soft_wrap=True)
        sys.exit(1)
    except DatabricksError as error:
        console.print(f"[red]{error.error_code or 'ERROR'}[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    cli()
