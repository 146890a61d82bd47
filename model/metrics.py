"""Prometheus metrics of this process: vLLM's own, ours, and its engine processes', in one text.

    body, content_type = metrics_text(), CONTENT_TYPE

What runs inside vLLM's engine process declares its metrics there with prometheus_client, and they
appear here: that process writes them to files, which this one reads.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST

_FILES_VAR = "PROMETHEUS_MULTIPROC_DIR"
_CALL_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 50, 120, 600, 3600)

_counted = CollectorRegistry()
_asked = CollectorRegistry()
_files: list[str] = []

ROWS = Counter(
    "formline_rows",
    "Rows by how they ended: a finish reason, or an error code",
    ["outcome"],
    registry=_counted,
)
TOKENS = Counter(
    "formline_tokens",
    "Tokens of answered rows; 'cached' is the part of 'prompt' that the prefix cache held",
    ["kind"],
    registry=_counted,
)
CALL_SECONDS = Histogram(
    "formline_call_seconds",
    "Seconds from a call's arrival to its end, by how it ended: 'done', 'left' by its caller, or "
    "an error code",
    ["outcome"],
    buckets=_CALL_SECONDS,
    registry=_counted,
)
REBUILDS = Counter(
    "formline_engine_rebuilds",
    "Engines rebuilt after a death, by outcome",
    ["outcome"],
    registry=_counted,
)


class Gauges(Collector):
    """One gauge, read when somebody asks: `read` gives its value for each value of `label`."""

    def __init__(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        self._name, self._text, self._label, self._read = name, text, label, read
        _asked.register(self)

    def describe(self) -> Iterable[Metric]:
        """The metric without values; prometheus_client asks for it when it registers one."""
        return [GaugeMetricFamily(self._name, self._text, labels=[self._label])]

    def collect(self) -> Iterable[Metric]:
        """The metric with its values of now."""
        family = GaugeMetricFamily(self._name, self._text, labels=[self._label])
        for label, value in self._read().items():
            family.add_metric([label], value)
        return [family]


def add_source(collector: Collector) -> None:
    """Adds what `collector` collects to `metrics_text`."""
    _asked.register(collector)


def metrics_text() -> bytes:
    """All metrics in Prometheus' text format."""
    if shared := os.environ.get(_FILES_VAR):  # several server processes share one directory
        return _read_files(shared) + generate_latest(_asked)
    own = generate_latest(REGISTRY) + generate_latest(_counted) + generate_latest(_asked)
    return own + b"".join(_read_files(folder) for folder in _files)


@contextmanager
def engine_process_metrics() -> Iterator[None]:
    """Engine processes spawned meanwhile write their metrics where `metrics_text` looks."""
    if _FILES_VAR in os.environ:
        yield
        return
    if not _files:
        _files.append(tempfile.mkdtemp(prefix="formline-metrics-"))
        atexit.register(shutil.rmtree, _files[0], ignore_errors=True)
    os.environ[_FILES_VAR] = _files[0]
    try:
        yield
    finally:
        del os.environ[_FILES_VAR]


def _read_files(folder: str) -> bytes:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
