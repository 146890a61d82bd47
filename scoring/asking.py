"""One chunk's rows through the target: fresh rows are asked, copies take their owner's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from scoring.answers import error_batch
from scoring.duplicates import Owner
from scoring.errors import TargetError
from scoring.requests import Requests
from scoring.targets import Target

# Codes of model/errors.py that may pass: the engine was at fault, not the row.
ENGINE_FAULTS = ("TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED")
WORTH_A_RETRY = (*ENGINE_FAULTS, "DEADLINE_EXCEEDED")

AnswersOf = Callable[[int], pa.RecordBatch]


class Pool:
    """Answers gathered from several places, and which row each one is for."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._places: dict[int, int] = {}

    def add(self, rows: Iterable[int], answers: pa.RecordBatch) -> None:
        """`answers` are those of `rows`, in the same order."""
        start = len(self._places)
        self._places |= {row: start + i for i, row in enumerate(rows)}
        self._batches.append(answers)

    def in_order(self, owners: Sequence[int]) -> pa.RecordBatch:
        """For each row, the answer given for the row `owners` names."""
        places = [self._places[owner] for owner in owners]
        return pa.concat_batches(self._batches).take(pa.array(places, pa.int64()))


@dataclass(frozen=True)
class Asker:
    """Asks the target a chunk at a time. `answers_of` gives an earlier chunk's answers, waiting
    for them when they are not there yet."""

    target: Target
    retries: int
    answers_of: AnswersOf

    def ask(self, chunk: int, requests: Requests, owners: Mapping[int, Owner]) -> pa.RecordBatch:
        """One answer a row, in order; `owners` are the owners of the rows that are copies."""
        rows = len(requests.rows)
        fresh = [i for i in range(rows) if i not in owners and i not in requests.errors]
        pool = Pool()
        if fresh:
            pool.add(fresh, self._ask_again(requests.frame(fresh)))
        if requests.errors:
            texts = list(requests.errors.values())
            pool.add(requests.errors, error_batch(texts, self.target.answer_schema))
        self._add_earlier(pool, chunk, owners)
        local = {row: owner.row for row, owner in owners.items() if owner.chunk == chunk}
        return pool.in_order([local.get(row, row) for row in range(rows)])

    def _add_earlier(self, pool: Pool, chunk: int, owners: Mapping[int, Owner]) -> None:
        earlier: dict[int, dict[int, int]] = {}
        for row, owner in owners.items():
            if owner.chunk != chunk:
                earlier.setdefault(owner.chunk, {})[row] = owner.row
        for other, members in earlier.items():
            chosen = pa.array(members.values(), pa.int64())
            pool.add(members, self.answers_of(other).take(chosen))

    def _ask_again(self, frame: pd.DataFrame) -> pa.RecordBatch:
        """The target's answers; rows that met a passing fault are asked again.

        Raises TargetError while the engine itself is at fault: no row is to blame for that.
        """
        answers = self.target.answer(frame)
        for _ in range(self.retries):
            failed = _rows_with(answers, WORTH_A_RETRY)
            if not failed:
                break
            answers = _replaced(answers, failed, self.target.answer(frame.iloc[failed]))
        broken = _rows_with(answers, ENGINE_FAULTS)
        if broken:
            raise TargetError(f"{len(broken)} rows: {answers.column('error')[broken[0]].as_py()}")
        return answers


def _rows_with(answers: pa.RecordBatch, codes: Sequence[str]) -> list[int]:
    errors = answers.column("error")
    if errors.null_count == len(errors):
        return []
    return [
        i for i, text in enumerate(errors.to_pylist()) if text and text.startswith(tuple(codes))
    ]


def _replaced(
    answers: pa.RecordBatch, rows: Sequence[int], better: pa.RecordBatch
) -> pa.RecordBatch:
    places = list(range(answers.num_rows))
    for place, row in enumerate(rows, answers.num_rows):
        places[row] = place
    return pa.concat_batches([answers, better]).take(pa.array(places, pa.int64()))
