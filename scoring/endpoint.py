"""Answers rows over HTTP: a Databricks serving endpoint (or the local one), or an invocations URL.

Tried again: 429, 502, 503, 504 and broken connections. A pack that is too slow or too large is
halved; a pack that is refused is halved until the row at fault stands alone and gets the error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import tenacity
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors.base import DatabricksError

from scoring.answers import ANSWER_SCHEMA, answer_batch, error_batch
from scoring.errors import TargetError, UsageError
from scoring.formats.cell_text import json_value
from scoring.limiter import AdaptiveLimit
from scoring.packing import PackSize, pack
from scoring.targets import check_names

RETRYABLE = frozenset({429, 502, 503})
TOO_LARGE, TOO_SLOW = 413, 504
REFUSED = frozenset({400, 422})
RETRY_REFUSED_S = 900.0  # an endpoint scaled to zero answers 503 for minutes
RETRY_UNREACHABLE_S = 60.0
BACKOFF = tenacity.wait_exponential(multiplier=0.25, max=20.0)
JITTER = tenacity.wait_random(0, 0.5)
READ_TIMEOUT_S = 310.0
MOST_CONCURRENT = 32


class Refusal(Exception):
    """The endpoint's answer to a whole pack, when it is not one answer a row."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after_s = status, message, retry_after_s


class EndpointTarget:
    """An endpoint by name (DATABRICKS_HOST, any auth the databricks-sdk knows) or by URL."""

    answer_schema = ANSWER_SCHEMA
    chunks_at_once = 4

    def __init__(
        self,
        endpoint: str,
        params: Mapping[str, Any],
        *,
        request_columns: Sequence[str],
        known_params: Sequence[str],
        most_concurrent: int = MOST_CONCURRENT,
    ) -> None:
        check_names("param", params, known_params)
        self.endpoint, self._params = endpoint, dict(params)
        self.request_columns = request_columns
        self.limit = AdaptiveLimit(most_concurrent)
        self.size = PackSize()
        self._route = _url_route(endpoint) if "://" in endpoint else _workspace_route(endpoint)
        self._http = httpx.Client(timeout=httpx.Timeout(READ_TIMEOUT_S, connect=10.0))
        self._pool = ThreadPoolExecutor(most_concurrent, thread_name_prefix="endpoint")
        self._answered, self._lock = False, Lock()

    def identity(self) -> dict[str, Any]:
        return {"endpoint": self.endpoint, **self._route.identity}

    def start(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def answer(self, requests: pd.DataFrame) -> pa.RecordBatch:
        records = [_record(row) for row in requests.to_dict("records")]
        sizes = [len(json.dumps(record, ensure_ascii=False).encode()) for record in records]
        packs = [[records[i] for i in span] for span in pack(sizes, self.size.rows)]
        answers = list(self._pool.map(self._ask, packs))
        return pa.concat_batches(answers) if answers else answer_batch([], self.answer_schema)

    def _ask(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        """The pack's answers, in order, whatever has to be halved or tried again for them."""
        try:
            predictions = self._send(rows)
        except Refusal as refusal:
            return self._after_refusal(rows, refusal)
        with self._lock:
            self._answered = True
        return answer_batch(predictions, self.answer_schema)

    def _after_refusal(self, rows: list[dict[str, Any]], refusal: Refusal) -> pa.RecordBatch:
        if refusal.status in (TOO_SLOW, TOO_LARGE):
            self.size.timed_out(len(rows))
        elif refusal.status not in REFUSED:
            raise TargetError(f"endpoint {self.endpoint}: {refusal.message}") from refusal
        if len(rows) > 1:
            middle = len(rows) // 2
            halves = [self._ask(rows[:middle]), self._ask(rows[middle:])]
            return self._checked(pa.concat_batches(halves), refusal)
        return error_batch([refusal.message], self.answer_schema)

    def _checked(self, answers: pa.RecordBatch, refusal: Refusal) -> pa.RecordBatch:
        """Rows that are all refused, before any was answered, mean that the call is wrong."""
        if not self._answered and answers.column("output").null_count == answers.num_rows:
            raise UsageError(f"endpoint {self.endpoint} refuses every row: {refusal.message}")
        return answers

    def _send(self, rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_retryable),
            wait=_wait,
            stop=_stop,
            reraise=True,
        )
        try:
            predictions: list[Mapping[str, Any]] = retrying(self._post, rows)
        except httpx.ReadTimeout as error:
            raise Refusal(TOO_SLOW, f"no reply within {READ_TIMEOUT_S:.0f} s") from error
        except httpx.HTTPError as error:
            raise TargetError(f"endpoint {self.endpoint}: {error}") from error
        return predictions

    def _post(self, rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
        with self.limit.slot():
            started = time.monotonic()
            reply = self._http.post(
                self._route.url,
                content=json.dumps({"dataframe_records": rows, "params": self._params}),
                headers={"Content-Type": "application/json", **self._route.headers()},
            )
        if reply.status_code == 429:
            self.limit.refused()
        if reply.status_code != 200:
            raise _refusal(reply)
        self.limit.succeeded()
        self.size.took(len(rows), time.monotonic() - started)
        return _predictions(reply, len(rows))


class _Route:
    """Where an endpoint is, how to sign in there, and what serves it now."""

    def __init__(
        self, url: str, headers: Callable[[], dict[str, str]], identity: dict[str, Any]
    ) -> None:
        self.url, self.headers, self.identity = url, headers, identity


def _url_route(url: str) -> _Route:
    if httpx.URL(url).path in ("", "/"):
        url = url.rstrip("/") + "/invocations"
    return _Route(url, dict, {})


def _workspace_route(name: str) -> _Route:
    try:
        workspace = WorkspaceClient()
        served = workspace.serving_endpoints.get(name).config
    except (DatabricksError, ValueError, OSError) as error:
        raise UsageError(f"endpoint {name}: {error}") from error
    entities = (served.served_entities if served else None) or []
    versions = sorted(f"{entity.entity_name}/{entity.entity_version}" for entity in entities)
    url = f"{workspace.config.host}/serving-endpoints/{name}/invocations"
    return _Route(url, workspace.config.authenticate, {"served": versions})


def _record(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    return {str(name): json_value(cell) for name, cell in row.items() if cell is not None}


def _refusal(reply: httpx.Response) -> Refusal:
    try:
        body = reply.json()
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    code = body.get("error_code", f"HTTP {reply.status_code}")
    text = body.get("message") or body.get("detail") or reply.reason_phrase
    return Refusal(reply.status_code, f"{code}: {text}", _seconds(reply.headers.get("retry-after")))


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.replace(".", "", 1).isdigit() else None


def _is_retryable(error: BaseException) -> bool:
    if isinstance(error, Refusal):
        return error.status in RETRYABLE
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.ReadTimeout)


def _stop(state: tenacity.RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    limit = RETRY_REFUSED_S if isinstance(error, Refusal) else RETRY_UNREACHABLE_S
    return (state.seconds_since_start or 0.0) >= limit


def _wait(state: tenacity.RetryCallState) -> float:
    """The server's own Retry-After, or an exponential wait with jitter."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, Refusal) and error.retry_after_s is not None:
        return error.retry_after_s
    return float((BACKOFF + JITTER)(state))


def _predictions(reply: httpx.Response, rows: int) -> list[Mapping[str, Any]]:
    try:
        predictions = reply.json()["predictions"]
    except (ValueError, KeyError, TypeError) as error:
        raise TargetError('the endpoint\'s reply is not {"predictions": [...]}') from error
    if not isinstance(predictions, list) or len(predictions) != rows:
        raise TargetError(f"the endpoint was asked {rows} rows and answered otherwise")
    return predictions
