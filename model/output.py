"""Completion -> OutputRow -> DataFrame: the answer, whether it can be relied on, and why not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

import pandas as pd
from mlflow.types import DataType

from model.completion import Choice, Completion
from model.errors import DeadlineExceeded, FormlineError, RowError
from model.rows import RequestRow, Rows
from model.validation import find_fault

TRUNCATED = "truncated"
REFUSAL = "refusal"
_CUT_SHORT = {"length": TRUNCATED, REFUSAL: REFUSAL}
OUTPUT_TYPES: dict[str, DataType] = {
    "output": DataType.string,
    "finish_reason": DataType.string,
    "error": DataType.string,
    "prompt_tokens": DataType.long,
    "completion_tokens": DataType.long,
    "reasoning": DataType.string,
    "logprob": DataType.double,
    "logprobs": DataType.string,
    "choices": DataType.string,
    "probabilities": DataType.string,
}


@dataclass(frozen=True)
class OutputRow:
    """One row's answer.

    `finish_reason` is stop, length, error, abort or refusal. `error` is None only for an answer
    that is whole and obeys its constraint. `logprob` is the mean log probability of the answer's
    tokens; it and `logprobs` (JSON: one object a token) come with the param `logprobs`.
    `choices` (JSON) holds all answers when `n` is above 1, `probabilities` (JSON) the share of
    each alternative of a choice.
    """

    output: str | None = None
    finish_reason: str = "error"
    error: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning: str | None = None
    logprob: float | None = None
    logprobs: str | None = None
    choices: str | None = None
    probabilities: str | None = None


@dataclass(frozen=True)
class _Answer:
    """One of a row's `n` answers, judged."""

    output: str
    finish_reason: str
    error: str | None
    reasoning: str | None
    logprob: float | None


def to_output(row: RequestRow, outcome: Completion | FormlineError) -> OutputRow:
    """The row's OutputRow from what the engine has for it."""
    if isinstance(outcome, FormlineError):
        return to_error(outcome)
    answers = [_judge(row, choice) for choice in outcome.choices]
    first = answers[0]
    return OutputRow(
        **asdict(first),
        prompt_tokens=outcome.prompt_tokens,
        completion_tokens=outcome.completion_tokens,
        logprobs=_token_logprobs(outcome.choices[0]),
        choices=_dump([asdict(answer) for answer in answers]) if len(answers) > 1 else None,
    )


def to_error(error: FormlineError) -> OutputRow:
    """The OutputRow of a row that has no answer."""
    reason = "abort" if isinstance(error, DeadlineExceeded) else "error"
    return OutputRow(finish_reason=reason, error=f"{error.code}: {error.message}")


def is_truncated(output: OutputRow) -> bool:
    """Whether more tokens would have let the answer end."""
    return output.error == TRUNCATED


def to_frame(rows: Sequence[OutputRow]) -> pd.DataFrame:
    """One record a row, in order: object columns, None for what is missing, never NaN."""
    return pd.DataFrame(
        {
            f.name: pd.Series([getattr(r, f.name) for r in rows], dtype=object)
            for f in fields(OutputRow)
        }
    )


def _judge(row: RequestRow, choice: Choice) -> _Answer:
    answer = _Answer(
        output=choice.text,
        finish_reason=choice.finish_reason,
        error=None,
        reasoning=choice.reasoning,
        logprob=_mean_logprob(choice),
    )
    if row.constraint is None:
        return answer
    if choice.finish_reason in _CUT_SHORT:
        return replace(answer, error=_CUT_SHORT[choice.finish_reason])
    fault = find_fault(choice.text, row.constraint)
    return answer if fault is None else replace(answer, error=f"INVALID_OUTPUT: {fault}")


def _mean_logprob(choice: Choice) -> float | None:
    if not choice.logprobs:
        return None
    chosen = [r[token].logprob for token, r in zip(choice.token_ids, choice.logprobs, strict=False)]
    return float(sum(chosen) / len(chosen))


def _token_logprobs(choice: Choice) -> str | None:
    """A list with one object a token: its text and log probability, and the likeliest others."""
    if choice.logprobs is None:
        return None
    tokens = []
    for token_id, ranked in zip(choice.token_ids, choice.logprobs, strict=False):
        chosen = ranked[token_id]
        others = {o.decoded_token or "": o.logprob for i, o in ranked.items() if i != token_id}
        tokens.append({"token": chosen.decoded_token, "logprob": chosen.logprob, "others": others})
    return _dump(tokens)


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def raise_if_wanted(rows: Rows, outputs: Sequence[OutputRow]) -> None:
    """With the call's `fail_on_row_error`, a RowError naming the first row that has an error."""
    if not rows.call.fields.fail_on_row_error:
        return
    wrong = [(at, output.error) for at, output in enumerate(outputs) if output.error is not None]
    if wrong:
        at, error = wrong[0]
        raise RowError(f"{len(wrong)} of {len(outputs)} rows failed; row {at}: {error}")
