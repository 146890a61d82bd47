"""A tokenizer's tokens as the bytes each of them writes.

Byte-level BPE writes bytes as letters, SentencePiece writes spaces as "▁" and lone bytes as
"<0x0A>", tekken and tiktoken hold bytes already. Control tokens write nothing: b"".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from model.errors import ConfigError

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_CONTROL_LOOK = re.compile(r"<[^\s<>]+>|\[[^\s\[\]]+\]", re.DOTALL)
_SPACE = "\u2581"


def token_bytes(tokenizer: Any) -> list[bytes]:
    """Token id -> its bytes in the middle of a text; b"" for ids that write no text.

    Reads Hugging Face tokenizers, SentencePiece processors, mistral_common's tokenizers, tiktoken
    encodings, and wrappers of these such as vLLM's. Raises ConfigError for any other kind.
    """
    for matches, read in _READERS:
        if matches(tokenizer):
            return read(tokenizer)
    inner = _unwrap(tokenizer)
    if inner is not None:
        return token_bytes(inner)
    raise ConfigError(
        f"cannot read the vocabulary of a {type(tokenizer).__name__} as bytes: use a Hugging Face "
        "fast tokenizer, SentencePiece, tiktoken or mistral_common tokenizer"
    )


def end_ids(tokenizer: Any) -> frozenset[int]:
    """The end-of-text ids a tokenizer names itself; empty when it names none."""
    for name in ("eos_token_id", "eos_id"):
        found = getattr(tokenizer, name, None)
        if callable(found):
            found = found()
        if isinstance(found, int):
            return frozenset([found])
        if isinstance(found, Iterable):
            return frozenset(int(each) for each in found)
    inner = _unwrap(tokenizer)
    return frozenset() if inner is None else end_ids(inner)


# --- Hugging Face fast tokenizers -------------------------------------------------------------


def _read_fast(tokenizer: Any) -> list[bytes]:
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    vocabulary = backend.get_vocab(with_added_tokens=True)
    write = _piece_writer(backend, tokenizer)
    tokens = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for piece, token in vocabulary.items():
        tokens[token] = write(piece)
    for token, added in backend.get_added_tokens_decoder().items():
        if added.special or _CONTROL_LOOK.fullmatch(added.content):
            tokens[token] = b""
    for token in getattr(tokenizer, "all_special_ids", ()):
        tokens[token] = b""
    return tokens


def _piece_writer(backend: Any, tokenizer: Any) -> Callable[[str], bytes]:
    kinds = set(_component_kinds(backend.decoder)) | set(_component_kinds(backend.pre_tokenizer))
    if "ByteLevel" in kinds:
        return _byte_level_piece
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return _sentencepiece_piece
    raise ConfigError(
        f"cannot read the vocabulary of a {type(tokenizer).__name__} as bytes: its decoder "
        f"({', '.join(sorted(kinds)) or 'none'}) is neither byte-level nor SentencePiece's"
    )


def _component_kinds(component: Any) -> list[str]:
    """The "type" of a decoder or pre-tokenizer and of those it is a sequence of."""
    if component is None:
        return []
    kinds = []
    waiting = [json.loads(component.__getstate__())]
    while waiting:
        state = waiting.pop()
        kinds.append(state["type"])
        waiting += state.get("decoders", []) + state.get("pretokenizers", [])
    return kinds


def _byte_letters() -> dict[int, int]:
    """The letters byte-level BPE writes bytes as: code point -> byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return dict(zip([*plain, *range(256, 256 + len(others))], plain + others, strict=True))


_BYTE_LETTERS = _byte_letters()
_LETTERS = re.compile("[" + re.escape("".join(map(chr, _BYTE_LETTERS))) + "]*")


def _byte_level_piece(piece: str) -> bytes:
    if _LETTERS.fullmatch(piece):
        return piece.translate(_BYTE_LETTERS).encode("latin-1")
    return piece.encode()  # an added token, kept as plain text


def _sentencepiece_piece(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()


# --- The other kinds --------------------------------------------------------------------------


def _read_sentencepiece(model: Any) -> list[bytes]:
    count = model.vocab_size()
    mute = (model.is_control, model.is_unknown, model.is_unused)
    return [
        b"" if any(is_mute(i) for is_mute in mute) else _sentencepiece_piece(model.id_to_piece(i))
        for i in range(count)
    ]


def _read_tekken(tokenizer: Any) -> list[bytes]:
    specials = tokenizer.num_special_tokens
    tokens = [b""] * tokenizer.n_words
    for token, rank in tokenizer._tekken_token2id_nospecial.items():
        tokens[specials + rank] = token
    return tokens


def _read_tiktoken(encoding: Any) -> list[bytes]:
    ranks: dict[bytes, int] = encoding._mergeable_ranks
    tokens = [b""] * encoding.n_vocab
    for token, rank in ranks.items():
        tokens[rank] = token
    return tokens


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda tokenizer: all(hasattr(tokenizer, name) for name in names)


_READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], list[bytes]]], ...] = (
    (_has("backend_tokenizer"), _read_fast),
    (_has("get_added_tokens_decoder", "decoder", "pre_tokenizer"), _read_fast),
    (_has("id_to_piece", "is_control", "is_unused"), _read_sentencepiece),
    (_has("id_to_byte_piece", "n_words", "_tekken_token2id_nospecial"), _read_tekken),
    (_has("_mergeable_ranks", "n_vocab"), _read_tiktoken),
)
# Where wrappers keep what they wrap: vLLM's MistralTokenizer, mistral_common's MistralTokenizer,
# InstructTokenizer and SentencePieceTokenizer, slow Hugging Face tokenizers over SentencePiece.
_WRAPPED = ("instruct_tokenizer", "tokenizer", "_model", "sp_model", "mistral")


def _unwrap(tokenizer: Any) -> Any | None:
    held = (getattr(tokenizer, name, None) for name in _WRAPPED)
    return next((inner for inner in held if inner is not None and inner is not tokenizer), None)
