"""Answers against a labelled column: accuracy, confusion matrix, calibration.

What is compared is a field of the answer (or the whole text), as text; a row without a usable
answer counts as wrong, under "(no answer)". Confidence is the probability of the chosen
alternative where the model gives it (`choice_probabilities`), else exp of the mean log probability
(`logprobs`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from scoring.errors import UsageError

NO_ANSWER = "(no answer)"
OTHER = "(other)"
MOST_CLASSES = 30
BINS = 10


@dataclass
class Evaluation:
    """Counts over all rows that have a label."""

    label: str
    answer_field: str | None = None
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    _names: dict[str, None] = field(default_factory=dict)
    _bin_rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    _bin_hits: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    _bin_sum: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(BINS))
    _squares: float = 0.0
    _right: int = 0

    def add(self, labels: Sequence[Any], answers: pa.RecordBatch) -> None:
        """One label and one answer a row; a null label leaves the row out."""
        names = ("output", "error", "logprob", "probabilities")
        cells = (answers.column(name).to_pylist() for name in names)
        for label, output, error, logprob, shares in zip(labels, *cells, strict=True):
            if label is not None:
                answer = None if error else chosen(output, self.answer_field)
                self._count(as_text(label), answer, confidence(answer, logprob, shares))

    def _count(self, label: str, answer: str | None, sure: float | None) -> None:
        self._right += answer == label
        said = NO_ANSWER if answer is None else answer
        self.pairs[self._named(label), self._named(said)] += 1
        if sure is not None:
            place = min(int(sure * BINS), BINS - 1)
            hit = answer == label
            self._bin_rows[place] += 1
            self._bin_hits[place] += hit
            self._bin_sum[place] += sure
            self._squares += (sure - hit) ** 2

    def _named(self, text: str) -> str:
        """The class, or OTHER once there are many: memory stays bounded."""
        if text not in self._names and len(self._names) >= MOST_CLASSES and text != NO_ANSWER:
            return OTHER
        self._names[text] = None
        return text

    @property
    def rows(self) -> int:
        return self.pairs.total()

    @property
    def accuracy(self) -> float:
        return self._right / self.rows if self.rows else math.nan

    def confusion(self) -> tuple[list[str], list[str], npt.NDArray[np.int64]]:
        """Labels (rows), answers (columns), counts."""
        labels = sorted({label for label, _ in self.pairs})
        answers = sorted({said for _, said in self.pairs} | set(labels))
        counts = [[self.pairs[label, said] for said in answers] for label in labels]
        return labels, answers, np.array(counts, np.int64).reshape(len(labels), len(answers))

    def calibration(self) -> list[tuple[float, float, int]]:
        """Per bin that holds rows: mean confidence, share right, rows."""
        bins = zip(self._bin_sum, self._bin_hits, self._bin_rows, strict=True)
        return [(float(s / n), float(h / n), int(n)) for s, h, n in bins if n]

    def metrics(self) -> dict[str, float]:
        """accuracy, labelled rows; with confidences also ECE and Brier score."""
        found = {"labelled_rows": float(self.rows)}
        if self.rows:
            found["accuracy"] = self.accuracy
        sure = int(self._bin_rows.sum())
        if sure:
            gaps = sum(abs(mean - share) * n for mean, share, n in self.calibration())
            found["expected_calibration_error"] = gaps / sure
            found["brier_score"] = self._squares / sure
        return found


def chosen(output: str | None, answer_field: str | None) -> str | None:
    """The part of an answer that is compared: a field (a/b), or an object's only one, or all."""
    if output is None:
        return None
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return output if answer_field is None else None
    if answer_field is None:
        only = isinstance(value, dict) and len(value) == 1
        return as_text(next(iter(value.values())) if only else value)
    for name in answer_field.split("/"):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return as_text(value)


def as_text(value: Any) -> str:
    """A label or an answer as text: true and True, 1.0 and 1 are the same."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def confidence(answer: str | None, logprob: float | None, shares: str | None) -> float | None:
    """How sure the model was of `answer`, from 0 to 1, or None when it did not say."""
    if answer is None:
        return None
    if shares:
        share = _share(json.loads(shares), answer)
        if share is not None:
            return min(max(share, 0.0), 1.0)
    return None if logprob is None else min(math.exp(logprob), 1.0)


def _share(shares: Any, answer: str) -> float | None:
    """The share of `answer` in {alternative: share}."""
    if not isinstance(shares, dict):
        return None
    for alternative, share in shares.items():
        if alternative == answer and isinstance(share, int | float):
            return float(share)
    return None


def check_label(label: str | None, answer_field: str | None, columns: Sequence[str]) -> None:
    """UsageError when the labelled column is not there."""
    if label is not None and label not in columns:
        raise UsageError(f"--label {label}: the input has the columns {', '.join(columns)}")
    if label is None and answer_field is not None:
        raise UsageError("--answer-field says what to compare; name the right answers with --label")
