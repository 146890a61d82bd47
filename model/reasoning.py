"""Splits the thinking from the answer, with the reasoning parser that vLLM has for the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.reasoning import ReasoningParser, ReasoningParserManager

from model.completion import Choice, Chunk, Completion
from model.errors import ConfigError

_ANY_REQUEST = ChatCompletionRequest(messages=[])  # parsers ask for one and read nothing of it


class ReasoningSplitter:
    """Knows where thinking ends. `parser` is vLLM's name of it, as in `vllm serve`.

    Raises ConfigError for a name that vLLM does not know, or a parser that the tokenizer's
    vocabulary does not fit.
    """

    def __init__(self, parser: str, tokenizer: Any) -> None:
        try:
            self._parser_class = ReasoningParserManager.get_reasoning_parser(parser)
            self._tokenizer = tokenizer
            self._new_parser()
        except (KeyError, RuntimeError, ValueError) as error:
            raise ConfigError(f"engine_args: reasoning_parser {parser!r}: {error}") from error

    def split(self, completion: Completion) -> Completion:
        """The completion with each choice's thinking moved to `reasoning`."""
        return replace(completion, choices=[self._split(c) for c in completion.choices])

    def stream(self, prompt_token_ids: Sequence[int]) -> ReasoningStream:
        """For one row's chunks, in order."""
        return ReasoningStream(self, prompt_token_ids)

    def _split(self, choice: Choice) -> Choice:
        reasoning, answer = self._new_parser().extract_reasoning(choice.text, _ANY_REQUEST)
        return replace(choice, reasoning=reasoning or None, text=answer or "")

    def _new_parser(self) -> ReasoningParser:
        return self._parser_class(self._tokenizer)


@dataclass
class _Seen:
    """One choice's text and tokens so far, and the parser that follows it."""

    parser: Any
    text: str = ""
    token_ids: list[int] = field(default_factory=list)


class ReasoningStream:
    """Splits a row's chunks as they come; keeps a parser a choice."""

    def __init__(self, splitter: ReasoningSplitter, prompt_token_ids: Sequence[int]) -> None:
        self._splitter, self._prompt = splitter, prompt_token_ids
        self._choices: dict[int, _Seen] = {}

    def split(self, chunk: Chunk) -> Chunk:
        """The chunk with its thinking moved to `reasoning`."""
        seen = self._choices.get(chunk.choice) or self._begin(chunk.choice)
        before, text = list(seen.token_ids), seen.text + chunk.text
        seen.token_ids += chunk.token_ids
        delta = seen.parser.extract_reasoning_streaming(
            seen.text, text, chunk.text, before, seen.token_ids, chunk.token_ids
        )
        seen.text = text
        if delta is None:
            return replace(chunk, text="")
        return replace(chunk, text=delta.content or "", reasoning=delta.reasoning)

    def _begin(self, choice: int) -> _Seen:
        seen = self._choices[choice] = _Seen(self._splitter._new_parser())
        seen.parser.adjust_initial_state_from_prompt(self._prompt)
        return seen
