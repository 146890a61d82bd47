"""Turns a registered model version into a serving endpoint: on Databricks, or on this machine.

    python deploy_endpoint.py deploy NAME --model catalog.schema.model --version 3
    python deploy_endpoint.py traffic NAME 3=90 4=10
    python deploy_endpoint.py rollback NAME

DATABRICKS_HOST and DATABRICKS_TOKEN say where; http://127.0.0.1:PORT is a local endpoint
(`make serve`). The registry is MLflow's own setting, and Unity Catalog for a catalog.schema.model
where MLflow has none. As functions: `deploy`, `split_traffic`, `roll_back`, `delete` and
`DesiredEndpoint`.
"""

from __future__ import annotations

import json
import os
from typing import Annotated
from urllib.parse import urlsplit

import mlflow
import typer
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config

from deploying.apply import DEFAULT_TIMEOUT_S, Outcome, delete, deploy
from deploying.desired import DesiredEndpoint, InferenceTable, RateLimit
from deploying.endpoint import find
from deploying.hardware import WorkloadType
from deploying.options import (
    read_pairs,
    read_rate_limits,
    read_shares,
    read_table,
    read_traffic,
)
from deploying.plan import plan
from deploying.preflight import preflight
from deploying.registered import resolve_version
from deploying.shown import (
    describe,
    print_outcome,
    print_steps,
    refuse_failures,
    reported_errors,
    tell,
)
from deploying.traffic import roll_back, split_traffic
from deploying.watch import DeployFailed
from model.errors import ConfigError

__all__ = [
    "DeployFailed",
    "DesiredEndpoint",
    "InferenceTable",
    "Outcome",
    "RateLimit",
    "WorkloadType",
    "delete",
    "deploy",
    "preflight",
    "roll_back",
    "split_traffic",
]

MAX_TIMEOUT_S = 7200.0
UNITY_CATALOG, LEVELS = "databricks-uc", 3  # catalog.schema.model
PATIENCE_S = 10  # for a server that does not answer; a wait for a rollout goes on beyond it
cli = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)

Timeout = Annotated[
    float, typer.Option(help="Seconds to wait, 7200 at most.", min=1, max=MAX_TIMEOUT_S)
]
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
    workload_type: WorkloadType = WorkloadType.GPU_MEDIUM,
    workload_size: Annotated[str, typer.Option(help="Small, Medium or Large.")] = "Small",
    min_concurrency: Annotated[
        int | None, typer.Option(help="Provisioned, instead of a size.")
    ] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(help="Provisioned, instead of a size.")
    ] = None,
    scale_to_zero: Annotated[bool, typer.Option(help="Hold no machine while nobody calls.")] = True,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="All variables; a secret is {{secrets/SCOPE/KEY}}."),
    ] = None,
    tag: Pairs = None,
    inference_table: Annotated[
        str | None, typer.Option(metavar="CATALOG.SCHEMA[.PREFIX]|none", help="Log calls there.")
    ] = None,
    rate_limit: Annotated[
        list[str] | None, typer.Option(metavar="[endpoint=|user=]CALLS|none", help="A minute.")
    ] = None,
    usage_tracking: Annotated[
        bool | None, typer.Option("--usage-tracking/--no-usage-tracking", help="Of AI Gateway.")
    ] = None,
    route_optimized: Annotated[bool, typer.Option(help="Only at creation.")] = False,
    description: Annotated[str | None, typer.Option(help="Only at creation.")] = None,
    instance_profile_arn: Annotated[str | None, typer.Option(help="For access to AWS.")] = None,
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
        client = workspace_if_configured() if dry_run else workspace()
        local = client is not None and is_local(client)
        choose_registry(registry_uri, model, local=local)
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
            rate_limits=read_rate_limits(rate_limit),
            usage_tracking=usage_tracking,
            route_optimized=route_optimized,
            description=description,
            instance_profile_arn=instance_profile_arn,
        )
        if client is None or dry_run:
            print_steps(plan(desired, find(client, name) if client else None))
            return
        if check:
            refuse_failures(preflight(desired, local=local, check_requirements=check_requirements))
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
        split = read_shares(shares)
        print_outcome(split_traffic(workspace(), name, split, timeout_s=timeout, report=tell))


@cli.command("rollback")
def rollback_command(
    name: str,
    to_version: Annotated[str | None, typer.Option(help="Instead of the last good one.")] = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Serve the last good version: the one before a version on trial, or before the current one."""
    with reported_errors():
        outcome = roll_back(workspace(), name, version=to_version, timeout_s=timeout, report=tell)
        print_outcome(outcome)


@cli.command("describe")
def describe_command(
    name: str,
    as_json: Annotated[bool, typer.Option("--json", help="All that the API says.")] = False,
) -> None:
    """Show an endpoint: state, versions, traffic, compute, tags, limits."""
    with reported_errors():
        endpoint = find(workspace(), name)
        if endpoint is None:
            raise ConfigError(f"there is no endpoint {name!r}; `deploy` makes one")
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
    workload_type: WorkloadType = WorkloadType.GPU_MEDIUM,
    registry_uri: RegistryUri = None,
    check_requirements: Annotated[bool, typer.Option(help="Ask a package index.")] = True,
) -> None:
    """Check a version for a workload type, and deploy nothing."""
    with reported_errors():
        choose_registry(registry_uri, model, local=False)
        desired = DesiredEndpoint.check(
            name="preflight",
            entity_name=model,
            traffic={resolve_version(model, version): 100},
            workload_type=workload_type,
        )
        refuse_failures(preflight(desired, local=False, check_requirements=check_requirements))


def workspace() -> WorkspaceClient:
    """The client for DATABRICKS_HOST. Raises ConfigError when it is not configured."""
    try:
        return WorkspaceClient(config=Config(retry_timeout_seconds=PATIENCE_S))
    except ValueError as error:
        raise ConfigError(
            "no workspace is configured: set DATABRICKS_HOST and DATABRICKS_TOKEN (for a local "
            f"endpoint http://127.0.0.1:8080 and any token). {error}"
        ) from None


def workspace_if_configured() -> WorkspaceClient | None:
    """The same, or None: a plan without a workspace is that of a creation."""
    try:
        return workspace()
    except ConfigError as error:
        tell(f"taken as new: {error.message}")
        return None


def is_local(client: WorkspaceClient) -> bool:
    """Whether the target is an endpoint on this machine."""
    return urlsplit(client.config.host or "").hostname in ("127.0.0.1", "localhost", "::1")


def choose_registry(uri: str | None, model: str, *, local: bool) -> None:
    """Look for versions where `uri` says, or MLflow's settings, or else in Unity Catalog.

    Databricks serves no version of a registry on this machine, MLflow's default.
    """
    told = mlflow.is_tracking_uri_set() or "MLFLOW_REGISTRY_URI" in os.environ
    in_catalog = model.count(".") == LEVELS - 1
    if uri or (in_catalog and not local and not told):
        mlflow.set_registry_uri(uri or UNITY_CATALOG)


if __name__ == "__main__":
    cli()
