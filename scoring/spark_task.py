"""What runs in a Spark task: rows in Arrow batches, the same rows with their answers out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from scoring.answers import ANSWER_SCHEMA, answers_from_frame
from scoring.asking import Asker
from scoring.chunks import Chunk, cut
from scoring.layout import Layout
from scoring.requests import RequestBuilder

ROW_RETRIES = 2
CHUNKS_AT_ONCE = 2  # the engine works on one while the task takes in and hands out another


@dataclass(frozen=True)
class SparkTask:
    """The function mapInArrow calls with a partition's batches. It travels: plain values only."""

    model_uri: str
    tracking_uri: str
    registry_uri: str
    params: Mapping[str, Any]
    columns: Mapping[str, str]
    prompt_template: str | None
    json_schema: str | None
    prefix: str
    batch_rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:  # an empty partition needs no engine
            return
        schema = first.schema
        layout = Layout.plan(schema, ANSWER_SCHEMA, self.prefix, self.json_schema)
        builder = RequestBuilder(schema, tuple(self.columns), self.columns, self.prompt_template)
        asker = Asker(_ExecutorTarget(self), ROW_RETRIES, _no_earlier_chunks)

        def answered(chunk: Chunk) -> pa.RecordBatch:
            answers = asker.ask(chunk.index, builder.build(chunk.table), {})
            return layout.join(chunk.table, answers)

        chunks = cut(_chained(first, batches), schema, self.batch_rows)
        with ThreadPoolExecutor(CHUNKS_AT_ONCE) as pool:
            waiting: deque[Future[pa.RecordBatch]] = deque()
            for chunk in chunks:
                waiting.append(pool.submit(answered, chunk))
                if len(waiting) > CHUNKS_AT_ONCE:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


class _ExecutorTarget:
    """The model version, loaded in this worker as a proxy to its executor's engine."""

    answer_schema = ANSWER_SCHEMA
    chunks_at_once = CHUNKS_AT_ONCE
    request_columns: tuple[str, ...] = ()

    def __init__(self, task: SparkTask) -> None:
        from scoring.executor_model import load_once

        self._task = task
        self._model = load_once(task.model_uri, task.tracking_uri, task.registry_uri)

    def identity(self) -> dict[str, Any]:
        return {"model": self._task.model_uri}

    def start(self) -> None:
        """Loaded already."""

    def close(self) -> None:
        """The executor keeps the engine."""

    def answer(self, requests: pd.DataFrame) -> pa.RecordBatch:
        frame = self._model.predict(requests, params=dict(self._task.params))
        return answers_from_frame(frame, len(requests), self.answer_schema)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _no_earlier_chunks(chunk: int) -> pa.RecordBatch:
    raise LookupError("rows are not copied between chunks on Spark")
