"""A tokenizer's vocabulary as bytes, a trie and packed token masks. Built once a process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.constraints.token_bytes import end_ids, token_bytes
from model.constraints.trie import DEAD, Trie, build_trie
from model.constraints.trie_walk import warm_up
from model.errors import ConfigError

__all__ = ["DEAD", "Trie", "Vocabulary"]

_WORD = 32


class Vocabulary:
    """What masks are made of: every token's bytes, and which ids end a text.

    size              rows of the logits; may exceed the tokenizer's own count
    words             int32 words of a packed mask: token t is bit t % 32 of word t // 32
    tokens            token id -> bytes; b"" (special, unused, padded) is never allowed by a mask
    eos_ids           ids that end a text
    max_token_length  bytes of the longest token
    key               equal for equal vocabularies, in any process
    """

    def __init__(self, tokens: Sequence[bytes], eos_ids: Iterable[int], size: int) -> None:
        self.size = size
        self.words = -(-size // _WORD)
        self.tokens = [*tokens[:size], *[b""] * (size - len(tokens))]
        self.eos_ids = frozenset(eos for eos in eos_ids if 0 <= eos < size)
        for eos in self.eos_ids:
            self.tokens[eos] = b""
        self.max_token_length = max(map(len, self.tokens), default=0)
        self.trie = build_trie(self.tokens)

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, size: int | None = None, eos_ids: Iterable[int] | None = None
    ) -> Vocabulary:
        """Reads a tokenizer (see token_bytes). `size` is the model's vocab_size.

        Bytes are those a token writes in mid-text: the space SentencePiece puts before the first
        word of a text belongs to its token. Raises ConfigError for an unknown kind of tokenizer.
        """
        warm_up()
        ends = end_ids(tokenizer) if eos_ids is None else eos_ids
        return cls.from_bytes(token_bytes(tokenizer), ends, size)

    @classmethod
    def from_bytes(
        cls, tokens: Sequence[bytes], eos_ids: Iterable[int], size: int | None = None
    ) -> Vocabulary:
        """Of given token bytes; `size` pads with ids that no mask allows, or cuts."""
        if size is not None and size < 1:
            raise ConfigError(f"vocabulary size: {size} is not a positive number of tokens")
        return cls(tokens, eos_ids, len(tokens) if size is None else size)

    @cached_property
    def key(self) -> str:
        digest = hashlib.sha256(repr((self.size, sorted(self.eos_ids))).encode())
        digest.update(np.fromiter(map(len, self.tokens), dtype="<i4", count=self.size).tobytes())
        digest.update(b"".join(self.tokens))
        return digest.hexdigest()

    def empty_mask(self) -> NDArray[np.int32]:
        """A mask that allows nothing: int32 [words]."""
        return np.zeros(self.words, dtype=np.int32)

    def pack(self, ids: NDArray[np.integer] | Iterable[int]) -> NDArray[np.int32]:
        """The packed mask, int32 [words], that allows `ids`; they must be below `size`."""
        allowed = np.zeros(self.size, dtype=np.bool_)
        if not isinstance(ids, np.ndarray):
            ids = np.fromiter(ids, dtype=np.int32)
        allowed[ids] = True
        packed = np.zeros(self.words * 4, dtype=np.uint8)
        bits = np.packbits(allowed, bitorder="little")
        packed[: len(bits)] = bits
        return packed.view("<i4").astype(np.int32, copy=False)

    def unpack(self, mask: NDArray[np.int32]) -> NDArray[np.int64]:
        """The ids a packed mask allows, ascending."""
        return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
