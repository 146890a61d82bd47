"""What goes into the engine and what comes out of it, free of vLLM's own output types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm import CompletionOutput, RequestOutput, SamplingParams
    from vllm.logprobs import Logprob


@dataclass(frozen=True)
class EngineRequest:
    """One row, ready for the engine.

    `reasoning` says whether the model may think before it answers: only then does the engine
    hold back the constraint until the thinking ends.
    """

    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    reasoning: bool = False


@dataclass(frozen=True)
class Choice:
    """One of a completion's `n` answers. `logprobs` has one dict a token, by token id.

    `reasoning` is the thinking that a reasoning parser split off, and None without one.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    stop_reason: str | int | None
    logprobs: list[dict[int, Logprob]] | None
    cumulative_logprob: float | None
    reasoning: str | None = None


@dataclass(frozen=True)
class Completion:
    """A finished row: its choices by index, and its token counts.

    `cached_tokens` counts the prompt tokens that the prefix cache already held.
    """

    choices: list[Choice]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Chunk:
    """The next piece of one choice of a streamed row.

    `finish_reason` is None until the choice's last chunk. `token_ids` are the tokens the piece
    came from; a piece may be empty while the bytes of a character are incomplete.
    """

    choice: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    stop_reason: str | int | None
    reasoning: str | None = None


def to_completion(output: RequestOutput) -> Completion:
    """Reads vLLM's final output of one request."""
    choices = [_choice(o) for o in sorted(output.outputs, key=lambda o: o.index)]
    return Completion(
        choices=choices,
        prompt_tokens=len(output.prompt_token_ids or ()),
        completion_tokens=sum(len(c.token_ids) for c in choices),
        cached_tokens=output.num_cached_tokens or 0,
    )


def to_chunks(output: RequestOutput) -> list[Chunk]:
    """Reads one of vLLM's delta outputs: a chunk for each choice that moved on."""
    return [
        Chunk(
            choice=o.index,
            text=o.text,
            token_ids=list(o.token_ids),
            finish_reason=o.finish_reason,
            stop_reason=o.stop_reason,
        )
        for o in output.outputs
    ]


def with_reasoning(completion: Completion, splits: Sequence[tuple[str | None, str]]) -> Completion:
    """The completion with each choice's text split into (reasoning, answer)."""
    choices = [
        replace(choice, reasoning=reasoning, text=answer)
        for choice, (reasoning, answer) in zip(completion.choices, splits, strict=True)
    ]
    return replace(completion, choices=choices)


def _choice(output: CompletionOutput) -> Choice:
    return Choice(
        text=output.text,
        token_ids=list(output.token_ids),
        finish_reason=output.finish_reason or "abort",
        stop_reason=output.stop_reason,
        logprobs=list(output.logprobs) if output.logprobs is not None else None,
        cumulative_logprob=output.cumulative_logprob,
    )
