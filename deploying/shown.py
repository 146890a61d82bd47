"""What the command line shows: an endpoint, a plan, findings, and errors with what to do next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from databricks.sdk import errors
from databricks.sdk.errors.base import DatabricksError
from requests import RequestException
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deploying.apply import Outcome
from deploying.endpoint import progress, served_entities, shares
from deploying.history import TAG, good_versions
from deploying.plan import Step
from deploying.preflight import Check, failures
from model.errors import ConfigError, FormlineError

COLOURS = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}
ADVICE: tuple[tuple[type[DatabricksError], str], ...] = (
    (errors.Unauthenticated, "Check DATABRICKS_TOKEN, or log in again."),
    (
        errors.PermissionDenied,
        "Ask for CAN MANAGE on the endpoint, and for EXECUTE on the model with USE CATALOG and "
        "USE SCHEMA above it.",
    ),
    (errors.ResourceConflict, "Wait for the update under way: the same command without --no-wait."),
    (errors.NotFound, "`describe` shows an endpoint's versions; `register.py` makes new ones."),
    (errors.TooManyRequests, "Wait a minute, then try again."),
    (errors.BadRequest, "`--dry-run` prints the request that was refused."),
    (DatabricksError, "Try again; the same command changes nothing that is done already."),
)
console = Console(stderr=True, highlight=False)


def tell(line: str) -> None:
    """A line of progress."""
    console.print(line, markup=False, soft_wrap=True)


def describe(endpoint: Mapping[str, Any]) -> str:
    """A few lines: state, what is served with its share and compute, tags and good versions."""
    lines = [f"{endpoint['name']}: {progress(endpoint)}"]
    for entity in served_entities(endpoint):
        share = shares(endpoint)[str(entity["entity_version"])]
        lines.append(f"  {share:3d} %  {_served(entity)}")
    lines.extend(_settings(endpoint))
    if good := good_versions(endpoint):
        lines.append(f"  good versions, newest first: {', '.join(good)}")
    return "\n".join(lines)


def print_outcome(outcome: Outcome) -> None:
    """What was sent, and the endpoint now."""
    sent = ", ".join(f"{step.method} {step.path}" for step in outcome.steps)
    tell(f"sent: {sent}" if sent else "unchanged: nothing had to be sent")
    typer.echo(describe(outcome.endpoint))


def print_steps(steps: list[Step]) -> None:
    """The requests as JSON, on standard output."""
    shown = [{"method": s.method, "path": s.path, "body": s.body} for s in steps]
    typer.echo(json.dumps(shown, indent=2))
    if any(step.rolls_out for step in steps):
        tell(f"once it is ready, the version is noted in the endpoint's tag {TAG}")


def refuse_failures(checks: list[Check]) -> None:
    """Print the findings. Raises ConfigError when one of them would fail the deployment."""
    table = Table("check", "verdict", "detail", title="pre-flight")
    for check in checks:
        verdict = f"[{COLOURS[check.verdict]}]{check.verdict}[/]"
        table.add_row(check.name, verdict, escape(check.detail))
    console.print(table)
    if failed := failures(checks):
        details = "; ".join(f"{check.name}: {check.detail}" for check in failed)
        raise ConfigError(f"pre-flight: {details}. `deploy --no-check` sends it all the same")


@contextmanager
def reported_errors() -> Iterator[None]:
    """Errors raised on purpose, and the API's own, end the command with what to do about them."""
    try:
        yield
    except FormlineError as error:
        _end(error.code, error.message)
    except DatabricksError as error:
        advice = next(text for kind, text in ADVICE if isinstance(error, kind))
        _end(error.error_code or "ERROR", f"{error} {advice}")
    except (TimeoutError, RequestException) as error:
        reason = error.__cause__ or error
        _end("UNREACHABLE", f"{reason}. Check DATABRICKS_HOST; `make serve` starts a local one.")


def _end(code: str, message: str) -> None:
    console.print(f"[red]{code}[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(1)


def _served(entity: Mapping[str, Any]) -> str:
    low, high = (entity.get(f"{end}_provisioned_concurrency") for end in ("min", "max"))
    size = entity.get("workload_size") or (high and f"{low or 0} to {high} calls at once")
    compute = " ".join(str(part) for part in (entity.get("workload_type"), size) if part)
    name = f"{entity['entity_name']} version {entity['entity_version']} as {entity['name']}"
    return f"{name} on {compute}" if compute else name


def _settings(endpoint: Mapping[str, Any]) -> Iterator[str]:
    tags = {t["key"]: t.get("value") or "" for t in endpoint.get("tags") or () if t["key"] != TAG}
    if tags:
        yield f"  tags: {', '.join(f'{key}={value}' for key, value in tags.items())}"
    gateway = endpoint.get("ai_gateway") or {}
    for limit in gateway.get("rate_limits") or ():
        yield f"  rate limit: {limit.get('calls')} calls a minute per {limit.get('key')}"
    table = gateway.get("inference_table_config") or {}
    if table.get("enabled"):
        yield f"  inference table in {table.get('catalog_name')}.{table.get('schema_name')}"
