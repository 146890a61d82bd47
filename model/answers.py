"""Rows -> OutputRows, through the engine: render, build sampling params, generate, judge, retry."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from model.alternatives import alternatives, log_probability, shares
from model.chat_template import ChatTemplate
from model.completion import Chunk, Completion, EngineRequest
from model.constraints.check import check_constraint
from model.engine import Engine
from model.errors import FormlineError
from model.output import REFUSAL, OutputRow, is_truncated, raise_if_wanted, to_error, to_output
from model.rows import RequestRow, Rows
from model.sampling import Limits, build_sampling_params


@dataclass(frozen=True)
class _Try:
    """One attempt at a row; `max_tokens` is its budget when it is not the row's own."""

    position: int
    item: RequestRow | FormlineError
    attempt: int = 0

    @property
    def max_tokens(self) -> int | None:
        """The budget: twice as large in each attempt."""
        if isinstance(self.item, FormlineError):
            return None
        return self.item.fields.max_tokens << self.attempt


_Outcome: TypeAlias = tuple[int, _Try | None, Completion | FormlineError]


class Answering:
    """Answers the rows of calls with one engine and one chat template. Thread-safe."""

    def __init__(
        self, engine: Engine, template: ChatTemplate, refusal_marks: Sequence[str] = ()
    ) -> None:
        self._engine = engine
        self._template = template
        self._limits = Limits(engine.max_model_len, template.control_ids, tuple(refusal_marks))

    def answer(
        self,
        rows: Rows,
        *,
        deadline_s: float | None = None,
        max_waiting_rows: int | None = None,
        log_content: bool = False,
    ) -> list[OutputRow]:
        """One OutputRow a row, in order. A row whose answer was cut is tried again, with twice
        the budget, as often as its `max_retries` says.

        Raises RequestError when the call's own constraint cannot be enforced, or when a row fails
        and the call asked for `fail_on_row_error`; EngineError when the engine takes no rows.
        """
        check_call(rows)
        generate = partial(
            self._generate,
            clock=_Clock(deadline_s),
            max_waiting_rows=max_waiting_rows,
            log_content=log_content,
        )
        outputs: list[OutputRow] = [OutputRow()] * len(rows)
        to_weigh: dict[int, RequestRow] = {}
        tries: Iterable[_Try] = _first_tries(rows)
        positions: Sequence[int] = range(len(rows))
        while positions:
            again = []
            for place, done, outcome in generate(tries, len(positions)):
                output = _judge(done, outcome, self._limits)
                if not _is_worse(output, outputs[positions[place]]):
                    outputs[positions[place]] = output
                if done is not None and self._is_worth_another(done, output):
                    again.append(replace(done, attempt=done.attempt + 1))
                if row := _row_to_weigh(done, output):
                    to_weigh[positions[place]] = row
            tries, positions = again, [retry.position for retry in again]
        for position, probabilities in _weigh(to_weigh, generate):
            outputs[position] = replace(outputs[position], probabilities=probabilities)
        raise_if_wanted(rows, outputs)
        return outputs

    def stream(
        self,
        rows: Rows,
        *,
        deadline_s: float | None = None,
        max_waiting_rows: int | None = None,
        log_content: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Pieces of answers as they come, then each row's whole OutputRow.

        A piece is {"row", "choice", "delta"}, with "reasoning" instead of "delta" while the model
        thinks; a row ends with {"row", "output", "finish_reason", "error", ...}. Nothing is tried
        again. Closing the iterator aborts what is not done.
        """
        check_call(rows)
        sent: dict[int, _Try] = {}
        events = self._engine.stream(
            self._requests(_first_tries(rows), sent),
            deadline_s=deadline_s,
            total=len(rows),
            max_waiting_rows=max_waiting_rows,
            log_content=log_content,
        )
        with closing(events):
            for position, event in events:
                if isinstance(event, Chunk):
                    yield from _pieces(position, event)
                else:
                    output = _judge(sent.pop(position, None), event, self._limits)
                    yield {"row": position, **asdict(output)}

    def _generate(
        self,
        tries: Iterable[_Try],
        total: int,
        *,
        clock: _Clock,
        max_waiting_rows: int | None,
        log_content: bool,
    ) -> Iterator[_Outcome]:
        """(place among the tries, the try unless it was never sent, what came of it)."""
        sent: dict[int, _Try] = {}
        for place, outcome in self._engine.generate(
            self._requests(tries, sent),
            deadline_s=clock.left(),
            total=total,
            max_waiting_rows=max_waiting_rows,
            log_content=log_content,
        ):
            yield place, sent.pop(place, None), outcome

    def _requests(
        self, tries: Iterable[_Try], sent: dict[int, _Try]
    ) -> Iterator[EngineRequest | FormlineError]:
        for place, this in enumerate(tries):
            sent[place] = this
            yield self._request(this)

    def _request(self, this: _Try) -> EngineRequest | FormlineError:
        if isinstance(this.item, FormlineError):
            return this.item
        try:
            if this.item.fields.choice_probabilities:
                alternatives(this.item)  # a row that has none is an error before it is answered
            prompt = self._template.render(this.item)
            sampling_params = build_sampling_params(
                this.item, self._limits, len(prompt), max_tokens=this.max_tokens
            )
        except FormlineError as error:
            return error
        thinks = this.item.fields.enable_thinking is not False
        return EngineRequest(prompt, sampling_params, reasoning=thinks)

    def _is_worth_another(self, this: _Try, output: OutputRow) -> bool:
        """Whether the answer was cut by a budget that may still grow."""
        if isinstance(this.item, FormlineError) or not is_truncated(output):
            return False
        used = (output.prompt_tokens or 0) + (this.max_tokens or 0)
        return this.attempt < this.item.fields.max_retries and used < self._limits.max_model_len


def check_call(rows: Rows) -> None:
    """Raises UnsupportedSchema when the call's own constraint cannot be enforced exactly."""
    if rows.call.constraint is not None:
        check_constraint(rows.call.constraint)


def _first_tries(rows: Rows) -> Iterator[_Try]:
    return (_Try(position, item) for position, item in enumerate(rows))


def _pieces(position: int, chunk: Chunk) -> Iterator[dict[str, Any]]:
    for name, text in (("reasoning", chunk.reasoning), ("delta", chunk.text)):
        if text:
            yield {"row": position, "choice": chunk.choice, name: text}


def _judge(done: _Try | None, outcome: Completion | FormlineError, limits: Limits) -> OutputRow:
    if isinstance(outcome, FormlineError):
        return to_error(outcome)
    if done is None or isinstance(done.item, FormlineError):
        raise TypeError("only rows that were sent are completed")
    return to_output(done.item, _with_refusals(outcome, limits))


def _with_refusals(completion: Completion, limits: Limits) -> Completion:
    """The completion with its refused choices marked as such."""
    if not any(limits.is_refusal(choice.stop_reason) for choice in completion.choices):
        return completion
    choices = [
        replace(choice, finish_reason=REFUSAL) if limits.is_refusal(choice.stop_reason) else choice
        for choice in completion.choices
    ]
    return replace(completion, choices=choices)


def _row_to_weigh(done: _Try | None, output: OutputRow) -> RequestRow | None:
    """The row, if its alternatives were asked for and it has an answer."""
    row = done.item if done is not None and output.error is None else None
    return row if isinstance(row, RequestRow) and row.fields.choice_probabilities else None


def _weigh(
    rows: Mapping[int, RequestRow], generate: Callable[[Sequence[_Try], int], Iterator[_Outcome]]
) -> Iterator[tuple[int, str]]:
    """(position, probabilities as JSON) of the rows all of whose alternatives could be weighed."""
    texts: list[str] = []
    tries: list[_Try] = []
    for position, row in rows.items():
        for text, narrowed in alternatives(row).items():
            texts.append(text)
            tries.append(_Try(position, narrowed))
    weights: dict[int, dict[str, float | None]] = {position: {} for position in rows}
    for place, _, outcome in generate(tries, len(tries)) if tries else ():
        weight = log_probability(outcome) if isinstance(outcome, Completion) else None
        weights[tries[place].position][texts[place]] = weight
    for position, found in weights.items():
        whole = {text: weight for text, weight in found.items() if weight is not None}
        if len(whole) == len(found):
            yield position, json.dumps(shares(whole), ensure_ascii=False)


def _is_worse(output: OutputRow, before: OutputRow) -> bool:
    """A retry that got no answer does not replace the cut answer before it."""
    return output.output is None and before.output is not None


class _Clock:
    """What is left of a call's time limit."""

    def __init__(self, deadline_s: float | None) -> None:
        self._ends_at = None if deadline_s is None else time.monotonic() + deadline_s

    def left(self) -> float | None:
        """Seconds, at least a thousandth; None without a limit."""
        return None if self._ends_at is None else max(0.001, self._ends_at - time.monotonic())
