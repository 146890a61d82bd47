"""Thinking split from answers, with vLLM's own parsers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from model.completion import Choice, Chunk, Completion
from model.errors import ConfigError
from model.reasoning import ReasoningSplitter


@pytest.fixture(scope="module")
def tokenizer(small_model_dir: Path) -> Any:
    """The small model's, taught the two tokens of a reasoning model."""
    tokenizer = AutoTokenizer.from_pretrained(str(small_model_dir))
    tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer


def completion(text: str) -> Completion:
    return Completion([Choice(text, [], "stop", None, None, None)], 1, 1, 0)


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>Two and two.</think>four", "Two and two.", "four"),
        ("Two and two.</think>four", "Two and two.", "four"),  # the prompt opened the thinking
        ("<think>Two and", "Two and", ""),  # cut while thinking: no answer
    ],
)
def test_a_completion_is_split(tokenizer: Any, text: str, reasoning: str, answer: str) -> None:
    splitter = ReasoningSplitter("deepseek_r1", tokenizer)
    (choice,) = splitter.split(completion(text)).choices
    assert (choice.reasoning, choice.text) == (reasoning, answer)


def test_chunks_are_split_as_they_come(tokenizer: Any) -> None:
    stream = ReasoningSplitter("deepseek_r1", tokenizer).stream([1, 2, 3])
    reasoning, answer = {0: "", 1: ""}, {0: "", 1: ""}
    texts = {0: "<think>One, two.</think>three", 1: "<think>No.</think>zero"}
    for choice, text in texts.items():
        for token in tokenizer.encode(text, add_special_tokens=False):
            piece = Chunk(choice, tokenizer.decode([token]), [token], None, None)
            split = stream.split(piece)
            reasoning[choice] += split.reasoning or ""
            answer[choice] += split.text
    assert reasoning == {0: "One, two.", 1: "No."}
    assert answer == {0: "three", 1: "zero"}


def test_a_parser_vllm_does_not_know(tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match=r"reasoning_parser 'nonsense'.*qwen3"):
        ReasoningSplitter("nonsense", tokenizer)


def test_a_parser_the_vocabulary_does_not_fit(small_model_dir: Path) -> None:
    plain = AutoTokenizer.from_pretrained(str(small_model_dir))
    with pytest.raises(ConfigError, match="reasoning_parser 'deepseek_r1'"):
        ReasoningSplitter("deepseek_r1", plain)
