"""Real tokenizers that need no download: the small model's, and one that mistral_common ships."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mistral_common
from transformers import AutoTokenizer, LlamaTokenizerFast

MISTRAL_V3 = (
    Path(mistral_common.__file__).parent / "data/mistral_instruct_tokenizer_240323.model.v3"
)


def bpe_tokenizer(small_model_dir: Path) -> Any:
    """SmolLM2's: byte-level BPE, ChatML, no begin-of-text token of its own."""
    return AutoTokenizer.from_pretrained(small_model_dir)


@cache
def sentencepiece_tokenizer() -> Any:
    """Mistral v3's: SentencePiece, `[INST]` as control tokens, puts `<s>` before a text."""
    with TemporaryDirectory() as folder:
        shutil.copy(MISTRAL_V3, Path(folder) / "tokenizer.model")
        return LlamaTokenizerFast.from_pretrained(folder, add_bos_token=True)
