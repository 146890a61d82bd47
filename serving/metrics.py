"""Prometheus metrics: this server's own, and those of every entity process with labels added."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager

import httpx
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from serving.endpoint import Endpoint
from serving.errors import ApiError
from serving.served_entity import ServedEntity

SCRAPE_S = 5.0
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class ServerMetrics:
    """Requests by endpoint and status, their seconds, and how many are under way."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "formline_endpoint_requests",
            "Requests answered",
            ["endpoint", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "formline_endpoint_request_seconds",
            "Seconds until the answer began",
            ["endpoint"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "formline_endpoint_requests_in_flight",
            "Requests under way",
            ["endpoint"],
            registry=self.registry,
        )

    @asynccontextmanager
    async def measured(self, endpoint: str) -> AsyncIterator[list[int]]:
        """Count one request; put its status into the list that is yielded."""
        began, status = time.monotonic(), [200]
        with self.in_flight.labels(endpoint).track_inprogress():
            try:
                yield status
            except ApiError as error:
                status = [error.status]
                raise
            except BaseException:
                status = [500]
                raise
            finally:
                self.requests.labels(endpoint, str(status[-1])).inc()
                self.seconds.labels(endpoint).observe(time.monotonic() - began)

    def total(self, endpoint: str) -> float:
        """Requests answered by one endpoint so far, whatever the status."""
        samples = [s for family in self.requests.collect() for s in family.samples]
        ours = [
            s for s in samples if s.labels.get("endpoint") == endpoint and s.name.endswith("_total")
        ]
        return sum(sample.value for sample in ours)

    async def exposition(self, endpoints: Iterable[Endpoint]) -> bytes:
        """The text format: ours, then the entities'."""
        return generate_latest(self.registry) + await entities_exposition(endpoints)


async def entities_exposition(endpoints: Iterable[Endpoint]) -> bytes:
    """The metrics of every running entity, labelled with its endpoint and name."""
    running = [
        (e.record.name, entity) for e in endpoints for entity in e.active.values() if entity.process
    ]
    texts = await asyncio.gather(*(scrape(entity) for _, entity in running))
    labels = [{"endpoint": name, "served_entity": entity.name} for name, entity in running]
    registry = CollectorRegistry()
    registry.register(_Labelled(list(zip(labels, texts, strict=True))))
    return generate_latest(registry)


async def scrape(entity: ServedEntity) -> str:
    """One entity's own metrics; an entity that does not answer has none right now."""
    if entity.process is None:
        return ""
    try:
        reply = await entity.process.client.get("/metrics", timeout=SCRAPE_S)
    except httpx.HTTPError:
        return ""
    return reply.text if reply.status_code == 200 else ""


class _Labelled(Collector):
    """Families of several expositions merged by name, each sample with its source's labels."""

    def __init__(self, sources: list[tuple[dict[str, str], str]]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for labels, text in self._sources:
            for family in text_string_to_metric_families(text):
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    merged.samples.append(sample._replace(labels={**sample.labels, **labels}))
        yield from families.values()


def read_counter(text: str, name: str, labels: Mapping[str, str]) -> float:
    """The sum over an exposition's samples of `name` that carry `labels`; 0 for none."""
    samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())
