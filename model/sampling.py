"""RequestRow -> vLLM SamplingParams, with the row's constraint on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from model.constraints.check import check_constraint
from model.errors import RowError
from model.rows import RequestRow


@dataclass(frozen=True)
class Limits:
    """What the engine allows, and where its model stops.

    `stop_tokens` are the control tokens by their text; `refusal_marks` are texts or control
    tokens with which the model says that it refuses.
    """

    max_model_len: int
    stop_tokens: Mapping[str, int]
    refusal_marks: tuple[str, ...] = ()

    def is_refusal(self, stop_reason: str | int | None) -> bool:
        """Whether an answer that stopped there was refused."""
        marks = {*self.refusal_marks, *_stop_token_ids(self.refusal_marks, self.stop_tokens)}
        return stop_reason in marks


def build_sampling_params(
    row: RequestRow, limits: Limits, prompt_tokens: int, *, max_tokens: int | None = None
) -> SamplingParams:
    """The row's SamplingParams; `max_tokens` replaces the row's own for a retry.

    The budget is cut to what the context leaves after the prompt: the answer then ends with
    finish_reason "length". Raises RowError when the prompt leaves no room at all, and
    UnsupportedSchema for a constraint that cannot be enforced exactly.
    """
    fields = row.fields
    room = limits.max_model_len - prompt_tokens
    if room < 1:
        raise RowError(
            f"the prompt has {prompt_tokens} tokens, but prompt and answer may have "
            f"{limits.max_model_len} together; shorten the prompt",
            "PROMPT_TOO_LONG",
        )
    budget = min(max_tokens or fields.max_tokens, room)
    stops = (*fields.stop, *limits.refusal_marks)
    return SamplingParams(
        n=fields.n,
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=max(fields.top_k, 0),
        min_p=fields.min_p,
        repetition_penalty=fields.repetition_penalty,
        presence_penalty=fields.presence_penalty,
        frequency_penalty=fields.frequency_penalty,
        seed=fields.seed,
        max_tokens=budget,
        min_tokens=min(fields.min_tokens, budget),
        ignore_eos=fields.ignore_eos,
        stop=list(stops),
        stop_token_ids=_stop_token_ids(stops, limits.stop_tokens),
        logprobs=fields.logprobs,
        structured_outputs=_structured_outputs(row),
    )


def _stop_token_ids(stops: Iterable[str], stop_tokens: Mapping[str, int]) -> list[int]:
    """A stop such as "<|eot_id|>" is one control token, which never shows in the text."""
    return [stop_tokens[stop] for stop in stops if stop in stop_tokens]


def _structured_outputs(row: RequestRow) -> StructuredOutputsParams | None:
    if row.constraint is None:
        return None
    check_constraint(row.constraint)
    return StructuredOutputsParams(json=row.constraint.to_text())
