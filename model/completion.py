"""What goes into the engine and what comes out of it, free of vLLM's own output types."""

from __future__ import annotations

from dataclasses import dataclass
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


class StreamedCompletion:
    """Puts a streamed row's chunks together again."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens, self._cached_tokens = prompt_tokens, 0
        self._chunks: dict[int, list[Chunk]] = {}
        self._logprobs: dict[int, list[dict[int, Logprob]]] = {}

    def add(self, chunk: Chunk, output: RequestOutput) -> None:
        """Adds the next chunk, which was made from `output`."""
        self._chunks.setdefault(chunk.choice, []).append(chunk)
        self._cached_tokens = max(self._cached_tokens, output.num_cached_tokens or 0)
        for made in output.outputs:
            if made.index == chunk.choice and made.logprobs is not None:
                self._logprobs.setdefault(chunk.choice, []).extend(made.logprobs)

    def completion(self) -> Completion:
        """The whole row, after its last chunk."""
        choices = [self._choice(index) for index in sorted(self._chunks)]
        return Completion(
            choices=choices,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=sum(len(c.token_ids) for c in choices),
            cached_tokens=self._cached_tokens,
        )

    def _choice(self, index: int) -> Choice:
        chunks = self._chunks[index]
        logprobs = self._logprobs.get(index)
        return Choice(
            text="".join(c.text for c in chunks),
            token_ids=[token for c in chunks for token in c.token_ids],
            finish_reason=chunks[-1].finish_reason or "abort",
            stop_reason=chunks[-1].stop_reason,
            logprobs=logprobs,
            cumulative_logprob=None,
            reasoning="".join(c.reasoning or "" for c in chunks) or None,
        )


def _choice(output: CompletionOutput) -> Choice:
    return Choice(
        text=output.text,
        token_ids=list(output.token_ids),
        finish_reason=output.finish_reason or "abort",
        stop_reason=output.stop_reason,
        logprobs=list(output.logprobs) if output.logprobs is not None else None,
        cumulative_logprob=output.cumulative_logprob,
    )
