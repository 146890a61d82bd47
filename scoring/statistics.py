"""What a job's report says, gathered row by row in memory that does not grow with the rows."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from scoring.checkpoint import ChunkRecord
from scoring.evaluation import Evaluation
from scoring.histogram import Histogram

SAMPLE_ROWS = 50
MOST_CODES = 50
MOST_TOKENS = 1 << 20


@dataclass
class Totals:
    """Sums over all chunks."""

    rows: int = 0
    answered: int = 0
    errors: int = 0
    copied: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def add(self, record: ChunkRecord) -> None:
        self.rows += record.rows
        self.answered += record.answered
        self.errors += record.errors
        self.copied += record.copied
        self.prompt_tokens += record.prompt_tokens
        self.completion_tokens += record.completion_tokens
        self.seconds = max(self.seconds, record.at_s)


@dataclass
class Statistics:
    """Everything about one job's answers. Chunks must come in order."""

    evaluation: Evaluation | None = None
    keep_sample: bool = True
    totals: Totals = field(default_factory=Totals)
    outcomes: Counter[str] = field(default_factory=Counter)
    prompt_tokens: Histogram = field(default_factory=lambda: Histogram(1, MOST_TOKENS, 2))
    completion_tokens: Histogram = field(default_factory=lambda: Histogram(1, MOST_TOKENS, 2))
    chunk_seconds: Histogram = field(default_factory=lambda: Histogram(0.001, 8192, 3))
    at_s: array[float] = field(default_factory=lambda: array("d"))
    rows_at: array[float] = field(default_factory=lambda: array("d"))
    tokens_at: array[float] = field(default_factory=lambda: array("d"))
    sample: list[dict[str, Any]] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311  a sample

    def add(self, record: ChunkRecord, batch: pa.RecordBatch, answers: pa.RecordBatch) -> None:
        """`batch` holds whole output rows, `answers` their answer columns."""
        self._take_sample(batch)
        self.totals.add(record)
        self.chunk_seconds.add([record.seconds])
        for series, value in zip(
            (self.at_s, self.rows_at, self.tokens_at),
            (record.at_s, record.rows, record.completion_tokens),
            strict=True,
        ):
            series.append(value)
        for name in ("prompt_tokens", "completion_tokens"):
            getattr(self, name).add(answers.column(name).drop_null().to_pylist())
        self._count_outcomes(answers)
        if self.evaluation is not None:
            self.evaluation.add(batch.column(self.evaluation.label).to_pylist(), answers)

    def _count_outcomes(self, answers: pa.RecordBatch) -> None:
        for error in answers.column("error").to_pylist():
            self.count_outcome("valid" if error is None else error.partition(":")[0].strip())

    def count_outcome(self, code: str, rows: int = 1) -> None:
        """`code` is "valid" or the code that an error begins with."""
        code = code[:60]
        known = code in self.outcomes or len(self.outcomes) < MOST_CODES
        self.outcomes[code if known else "other errors"] += rows

    def _take_sample(self, batch: pa.RecordBatch) -> None:
        """A uniform sample over all rows (reservoir sampling)."""
        if not self.keep_sample:
            return
        for i in range(batch.num_rows):
            seen = self.totals.rows + i
            if seen < SAMPLE_ROWS:
                self.sample.append(batch.slice(i, 1).to_pylist()[0])
            elif (place := self._random.randrange(seen + 1)) < SAMPLE_ROWS:
                self.sample[place] = batch.slice(i, 1).to_pylist()[0]

    def metrics(self) -> dict[str, float]:
        totals = self.totals
        found = {
            "rows": totals.rows,
            "rows_valid": totals.answered,
            "rows_with_errors": totals.errors,
            "rows_copied": totals.copied,
            "prompt_tokens": totals.prompt_tokens,
            "completion_tokens": totals.completion_tokens,
            "seconds": totals.seconds,
            "rows_per_second": totals.rows / totals.seconds if totals.seconds else 0.0,
            "tokens_per_second": totals.completion_tokens / totals.seconds if totals.seconds else 0,
            "completion_tokens_mean": self.completion_tokens.mean,
        }
        if self.chunk_seconds.count:
            found["chunk_seconds_p50"] = self.chunk_seconds.quantile(0.5)
            found["chunk_seconds_p95"] = self.chunk_seconds.quantile(0.95)
        if self.evaluation is not None:
            found |= self.evaluation.metrics()
        return {name: float(value) for name, value in found.items()}
