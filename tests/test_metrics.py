"""One text for all metrics, the engine processes' included; and logs that keep content private."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from model.call_record import CallRecord
from model.completion import Choice, Completion, EngineRequest
from model.errors import DeadlineExceeded
from model.metrics import Gauges, engine_process_metrics, metrics_text

ENGINE_PROCESS = """
from prometheus_client import Counter
Counter("formline_made_elsewhere", "Counted in another process").inc(7)
"""


def values(text: bytes) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(text.decode())
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


def test_what_an_engine_process_counts_is_seen_here() -> None:
    with engine_process_metrics():
        subprocess.run([sys.executable, "-c", ENGINE_PROCESS], check=True)
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ
    assert values(metrics_text())["formline_made_elsewhere_total",] == 7


def test_a_gauge_is_read_when_asked() -> None:
    now = {"a": 1.0}
    Gauges("formline_test_gauge", "For this test", "which", lambda: now)
    assert values(metrics_text())["formline_test_gauge", "a"] == 1
    now["a"] = 2.0
    assert values(metrics_text())["formline_test_gauge", "a"] == 2


@pytest.mark.parametrize("private", [True, False])
def test_a_call_is_written_down(private: bool, caplog: pytest.LogCaptureFixture) -> None:
    before = values(metrics_text())
    with caplog.at_level(logging.INFO, logger="formline"):
        record = CallRecord(2, None if private else lambda ids: f"text of {ids}")
        request = EngineRequest([1, 2], sampling_params=object())
        assert list(record.requests([request])) == [request]
        answer = Completion([Choice("the answer", [1], "stop", None, None, None)], 2, 1, 1)
        record.outcome(0, answer)
        record.outcome(1, DeadlineExceeded("too late"))
        record.end("done")
    after = values(metrics_text())
    grown = {key: after[key] - before.get(key, 0.0) for key in after}
    assert grown["formline_rows_total", "stop"] == 1
    assert grown["formline_rows_total", "DEADLINE_EXCEEDED"] == 1
    assert grown["formline_tokens_total", "prompt"] == 2
    assert grown["formline_tokens_total", "cached"] == 1
    assert grown["formline_call_seconds_count", "done"] == 1

    events = [json.loads(line.message) for line in caplog.records]
    assert events[-1]["outcomes"] == {"stop": 1, "DEADLINE_EXCEEDED": 1}
    written = " ".join(line.message for line in caplog.records)
    assert ("the answer" in written) is not private
    assert ("text of [1, 2]" in written) is not private
