"""A job as an MLflow run. A resumed job goes on in the run it began in.

The run is a report, not the job: when the tracking server fails, the rows still get answered, and
the reason is shown.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import mlflow
import pandas as pd
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

from scoring.checkpoint import WorkFolder
from scoring.formats.cell_text import json_value
from scoring.plots import figures
from scoring.progress import Tally
from scoring.statistics import Statistics

EVERY_S = 5.0
NOTE = "mlflow_run"
MOST_PARAM = 500

T = TypeVar("T")


class Run:
    """The MLflow run of one job."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._client = mlflow.MlflowClient()
        self._last = float("-inf")

    @classmethod
    def begin(cls, job: Mapping[str, Any], name: str, folder: WorkFolder | None) -> Run | None:
        """The job's run, new or the one noted in `folder` before a kill.

        `job` has "settings" and "target", among others. None when the server does not answer.
        """
        known = None if folder is None else folder.note(NOTE)

        def start() -> Run:
            run_id = known or _create(job, name)
            if folder is not None:
                folder.keep_note(NOTE, run_id)
            run = cls(run_id)
            run._client.update_run(run_id, "RUNNING")
            return run

        return _reported(start)

    def live(self, tally: Tally) -> None:
        """Throughput so far, every few seconds."""
        now = time.monotonic()
        if now - self._last < EVERY_S:
            return
        self._last = now
        values = {
            "live_rows": tally.rows,
            "live_errors": tally.errors,
            "live_rows_per_second": tally.rows_per_s,
            "live_tokens_per_second": tally.tokens_per_s,
        }
        _reported(lambda: self._log(values, tally.rows))

    def finish(self, statistics: Statistics) -> None:
        """Metrics, plots, the sample table, and the end."""

        def report() -> None:
            self._log(statistics.metrics(), statistics.totals.rows)
            for file, figure in figures(statistics):
                self._client.log_figure(self.run_id, figure, f"plots/{file}")
            self._client.log_dict(self.run_id, dict(statistics.outcomes), "outcomes.json")
            if statistics.sample:
                sample = pd.DataFrame(json_value(statistics.sample)).astype(object)
                self._client.log_table(self.run_id, sample, "sample.json")
            self._client.set_terminated(self.run_id, "FINISHED")

        _reported(report)

    def stop(self, status: str) -> None:
        """KILLED (may go on) or FAILED."""
        _reported(lambda: self._client.set_terminated(self.run_id, status))

    def _log(self, values: Mapping[str, float], step: int) -> None:
        at = int(time.time() * 1000)
        metrics = [Metric(name, float(value), at, step) for name, value in values.items()]
        self._client.log_batch(self.run_id, metrics=metrics)


def _create(job: Mapping[str, Any], name: str) -> str:
    """A new run in the experiment that is set, inside the active run if there is one."""
    nested = mlflow.active_run() is not None
    tags = {"formline.kind": "scoring"}
    with mlflow.start_run(run_name=name, nested=nested, tags=tags) as run:
        run_id: str = run.info.run_id
    client = mlflow.MlflowClient()
    settings = {**job["settings"], **job["target"]}
    params = settings.pop("params")
    flat = {**settings, **{f"param.{key}": value for key, value in params.items()}}
    logged = [Param(key, _text(value)) for key, value in flat.items() if value not in (None, {})]
    client.log_batch(run_id, params=logged)
    client.log_dict(run_id, dict(job), "job.json")
    if settings.get("json_schema"):
        client.log_text(run_id, settings["json_schema"], "json_schema.json")
    return run_id


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_PARAM else text[: MOST_PARAM - 3] + "..."


def _reported(action: Callable[[], T]) -> T | None:
    try:
        return action()
    except MlflowException as error:
        warnings.warn(f"MLflow run not written: {error.message}", stacklevel=3)
        return None
