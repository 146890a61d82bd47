"""A model that thinks, in the real engine: thinking apart from answers, constraints after it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from model.answers import Answering
from model.chat_template import ChatTemplate
from model.config import ModelConfig
from model.engine import Engine
from model.rows import Rows, parse_rows

pytestmark = pytest.mark.engine

# Two control tokens of the small model that it has no use for become those of a thinking model.
RENAMED = {"<filename>": "<think>", "<gh_stars>": "</think>"}
LIKELIER = 1.02  # than the full stop, so that thinking ends with its first sentence
OPENED_THINKING = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "large": {"type": "boolean"}},
    "required": ["city", "large"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def thinking_model(small_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the small model that thinks aloud for one sentence, then answers."""
    folder = tmp_path_factory.mktemp("weights") / "thinking"
    shutil.copytree(small_model_dir, folder)
    full_stop = AutoTokenizer.from_pretrained(str(folder)).encode(".", add_special_tokens=False)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"]
    for token in tokenizer["added_tokens"]:
        if token["content"] in RENAMED:
            new = RENAMED[token["content"]]
            ids[new] = ids.pop(token["content"])
            token.update(content=new, special=False)  # as the models that think have it
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(OPENED_THINKING)
    weights = load_file(folder / "model.safetensors")
    rows = weights["model.embed_tokens.weight"]  # of the output as well: they are tied
    rows[ids["</think>"]] = rows[full_stop[0]] * LIKELIER
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def answering(thinking_model: Path, engine_args: dict[str, Any]) -> Iterator[Answering]:
    args = engine_args | {"reasoning_parser": "deepseek_r1"}
    engine = Engine.acquire(str(thinking_model), ModelConfig(engine_args=args))
    yield Answering(engine, ChatTemplate.from_config("model", engine.tokenizer))
    engine.shutdown()


def rows(*records: dict[str, Any]) -> Rows:
    prompt = {"prompt": "Name a large city, and say why it is large."}
    return parse_rows(
        pd.DataFrame([prompt | record for record in records], dtype=object),
        {"temperature": 0.0, "max_tokens": 120},
    )


def test_thinking_constraints_and_neither_in_one_batch(answering: Answering) -> None:
    schema = json.dumps(CITY)
    free, constrained, unthinking, plain = answering.answer(
        rows(
            {},
            {"json_schema": schema},
            {"json_schema": schema, "enable_thinking": False},
            {"enable_thinking": False},
        )
    )
    for thought in (free, constrained):
        assert thought.reasoning is not None
        assert len(thought.reasoning.split()) > 2, "it thought in words"
        assert "think>" not in thought.reasoning
        with pytest.raises(ValueError, match="Expecting value"):
            json.loads(thought.reasoning)
    assert free.reasoning == constrained.reasoning, "no constraint holds while it thinks"
    for answer in (constrained, unthinking):
        assert (answer.error, answer.finish_reason) == (None, "stop")
        assert set(json.loads(answer.output or "")) == {"city", "large"}
    assert (unthinking.reasoning, plain.reasoning) == (None, None)
    assert free.output
    assert plain.output


def test_a_stream_tells_thinking_from_answer(answering: Answering) -> None:
    batch: list[dict[str, Any]] = [
        {"json_schema": json.dumps(CITY)},
        {"choice": ["Lagos", "Osaka"]},
    ]
    whole = answering.answer(rows(*batch))
    pieces: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
    for piece in answering.stream(rows(*batch)):
        pieces[piece["row"]].append(piece)
    for row, expected in enumerate(whole):
        *deltas, end = pieces[row]
        kinds = ["reasoning" if "reasoning" in delta else "delta" for delta in deltas]
        assert kinds == sorted(kinds, reverse=True), "the thinking comes first"
        assert "".join(delta.get("reasoning", "") for delta in deltas) == expected.reasoning
        assert "".join(delta.get("delta", "") for delta in deltas) == expected.output
        assert (end["reasoning"], end["output"]) == (expected.reasoning, expected.output)


def test_an_answer_cut_while_thinking_is_no_answer(answering: Answering) -> None:
    schema = {"json_schema": json.dumps(CITY), "max_tokens": 3}
    (cut,) = answering.answer(rows(schema))
    assert cut.reasoning
    assert not cut.output
    assert cut.finish_reason == "length"
    assert cut.error is not None
