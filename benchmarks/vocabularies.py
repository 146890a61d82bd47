"""The vocabularies the benchmarks run on: one of 49k tokens and one of 131k."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from model.constraints.vocabulary import DEAD, Vocabulary

NAMES = ("smollm2", "tekken")
_SMOLLM2_END = 2  # <|im_end|>
_SMOLLM2 = Path(__file__).resolve().parent.parent / ".cache" / "smollm2-135m-instruct"


def load(name: str) -> Vocabulary:
    """A vocabulary by its name, one of NAMES."""
    return {"smollm2": _smollm2, "tekken": _tekken}[name]()


def _smollm2() -> Vocabulary:
    from tokenizers import Tokenizer

    path = _SMOLLM2 / "tokenizer.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing: run `make setup` first, which builds the small model")
    tokenizer = Tokenizer.from_file(str(path))
    return Vocabulary.from_tokenizer(tokenizer, eos_ids=[_SMOLLM2_END])


def _tekken() -> Vocabulary:
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    path = files("mistral_common") / "data" / "tekken_240911.json"
    return Vocabulary.from_tokenizer(Tekkenizer.from_file(str(path)))


def tokenize(vocabulary: Vocabulary, text: bytes) -> list[int]:
    """Ids of the longest tokens that spell the text, from the left. Works for any bytes."""
    trie, ids, start = vocabulary.trie, [], 0
    while start < len(text):
        node, best, best_end = 0, DEAD, start
        for end in range(start, len(text)):
            node = trie.children(node).get(text[end], DEAD)
            if node == DEAD:
                break
            if trie.first_token[node] < trie.first_token[node + 1]:
                best, best_end = node, end + 1
        if best == DEAD:
            raise ValueError(f"no token spells byte {start} of {text!r}")
        ids.append(int(trie.tokens_at(best)[0]))
        start = best_end
    return ids
