"""Vocabularies: the bytes of every token, the trie over them, walks and packed masks."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.constraints.dfa import Dfa
from model.constraints.trie import build_trie
from model.constraints.vocabulary import DEAD, Vocabulary
from model.errors import ConfigError

DATA = files("mistral_common") / "data"
TEXTS = [
    "Hello, world!",
    '{"grade": "yes", "n": [1, 2.5e-3, null]}',
    "  leading and trailing  ",
    "tabs\tand\r\nlines\n\n\n        deep",
    "日本語のテキストと漢字",
    "在线 北京 姓氏",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 é ñ \u0301",
    "العربية עברית ไทย",
    "\x00\x01\x7f\x80 \ufffd \U0010ffff",
    'C:\\path\\"quoted"\\u00e9',
    " ",
    "▁ is also a character",
]


class Kind(SimpleNamespace):
    """A tokenizer of a kind: itself, its encoder and the text it puts before a text."""

    tokenizer: Any
    lead: str

    def encode(self, text: str) -> list[int]:
        return self.encoder(text)  # type: ignore[no-any-return]


def hugging_face(path: Path) -> Kind:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(path))
    return Kind(
        tokenizer=tokenizer,
        encoder=lambda text: tokenizer.encode(text, add_special_tokens=False),
        lead="",
    )


def mistral(file: str, lead: str) -> Kind:
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    tokenizer = MistralTokenizer.from_file(str(DATA / file))
    raw = tokenizer.instruct_tokenizer.tokenizer
    return Kind(
        tokenizer=tokenizer, encoder=lambda text: raw.encode(text, bos=False, eos=False), lead=lead
    )


def sentencepiece_in_hugging_face_form() -> Kind:
    """The BPE of a SentencePiece model as Llama 2's tokenizer.json has it."""
    import sentencepiece
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    model = sentencepiece.SentencePieceProcessor()
    model.Load(str(DATA / "mistral_instruct_tokenizer_240323.model.v3"))
    pieces = [model.IdToPiece(i) for i in range(model.GetPieceSize())]
    known = {piece: i for i, piece in enumerate(pieces)}
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(pieces, key=lambda piece: -model.GetScore(known[piece]))
        if len(piece) > 1 and not model.IsByte(known[piece]) and not model.IsControl(known[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    ]
    tokenizer = Tokenizer(models.BPE(known, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    specials = [piece for piece in pieces if model.IsControl(known[piece]) or piece == "<unk>"]
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False) for piece in specials])
    return Kind(
        tokenizer=tokenizer,
        encoder=lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        lead=" ",
    )


KINDS = {
    "smollm2": None,
    "tekken": lambda: mistral("tekken_240911.json", ""),
    "sentencepiece": lambda: mistral("mistral_instruct_tokenizer_240323.model.v3", " "),
    "llama2": sentencepiece_in_hugging_face_form,
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    make = KINDS[request.param]
    if make is None:
        return hugging_face(request.getfixturevalue("small_model_dir"))
    return make()


@pytest.fixture(scope="module")
def vocabulary(kind: Kind) -> Vocabulary:
    return Vocabulary.from_tokenizer(kind.tokenizer, eos_ids=[2])


def test_tokens_spell_the_text(kind: Kind, vocabulary: Vocabulary) -> None:
    for text in TEXTS:
        if "▁" in text and kind.lead:
            continue  # SentencePiece itself reads this character as a space
        spelled = b"".join(vocabulary.tokens[token] for token in kind.encode(text))
        assert spelled == (kind.lead + text).encode()


def test_text_can_be_spelled_byte_by_byte(vocabulary: Vocabulary) -> None:
    missing = {byte for byte in range(256) if vocabulary.trie.find(bytes([byte])) == DEAD}
    # Some vocabularies lack bytes that UTF-8 never holds, control characters, and the first bytes
    # of planes without characters.
    assert missing <= {*range(0x09), *range(0x0E, 0x20), 0xC0, 0xC1, *range(0xF1, 0x100)}


def test_control_tokens_write_nothing(kind: Kind, vocabulary: Vocabulary) -> None:
    specials = [i for i, token in enumerate(vocabulary.tokens) if not token]
    assert vocabulary.eos_ids <= set(specials)
    assert not any(b"<|im_end|>" in token or b"[INST]" in token for token in vocabulary.tokens)
    every = vocabulary.trie.token_ids
    assert len(every) == vocabulary.size - len(specials)
    assert not set(specials) & set(every.tolist())


def test_eos_is_found_in_wrappers(kind: Kind) -> None:
    if kind.tokenizer.__class__.__module__.startswith("tokenizers"):
        pytest.skip("a bare tokenizers.Tokenizer names no end of text")
    assert Vocabulary.from_tokenizer(kind.tokenizer).eos_ids == {2}


def test_vllm_wrappers(small_model_dir: Path) -> None:
    from vllm.tokenizers import get_tokenizer

    wrapped = Vocabulary.from_tokenizer(get_tokenizer(str(small_model_dir)))
    plain = Vocabulary.from_tokenizer(hugging_face(small_model_dir).tokenizer)
    assert wrapped.key == plain.key
    assert wrapped.eos_ids == {2}


def test_vllm_mistral_wrapper(tmp_path: Path) -> None:
    from vllm.tokenizers.mistral import MistralTokenizer

    (tmp_path / "tekken.json").write_bytes((DATA / "tekken_240911.json").read_bytes())
    wrapped = Vocabulary.from_tokenizer(MistralTokenizer.from_pretrained(str(tmp_path)))
    assert wrapped.key == Vocabulary.from_tokenizer(mistral("tekken_240911.json", "").tokenizer).key


def test_tiktoken() -> None:
    import tiktoken

    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"abc": 257}
    encoding = tiktoken.Encoding(
        "tiny", pat_str=r"\w+|\W", mergeable_ranks=ranks, special_tokens={"<|end|>": 258}
    )
    vocabulary = Vocabulary.from_tokenizer(encoding, eos_ids=[258])
    assert vocabulary.size == 259
    assert b"".join(vocabulary.tokens[i] for i in encoding.encode("xabc!")) == b"xabc!"
    assert vocabulary.tokens[258] == b""


def test_added_tokens_of_a_byte_level_tokenizer() -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models

    tokenizer = Tokenizer(models.BPE({"a": 0, "Ġa": 1, "Ċ": 2}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("   "), AddedToken("<think>"), AddedToken("日本")])
    tokenizer.add_special_tokens([AddedToken("<|end|>")])
    expected = [b"a", b" a", b"\n", b"   ", b"", "日本".encode(), b""]
    assert Vocabulary.from_tokenizer(tokenizer).tokens == expected


def test_unknown_kinds_are_refused() -> None:
    from tokenizers import Tokenizer, decoders, models

    wordpiece = Tokenizer(models.WordPiece({"a": 0, "##b": 1}, unk_token="a"))
    wordpiece.decoder = decoders.WordPiece()
    with pytest.raises(ConfigError, match="WordPiece"):
        Vocabulary.from_tokenizer(wordpiece)
    with pytest.raises(ConfigError, match="object"):
        Vocabulary.from_tokenizer(object())
    with pytest.raises(ConfigError, match="size"):
        Vocabulary.from_bytes([b"a"], [], size=0)


def test_padding_cutting_and_several_ends() -> None:
    tokens = [b"a", b"b", b"</s>", b"<end>"]
    padded = Vocabulary.from_bytes(tokens, [2, 3, 99], size=70)
    assert (padded.size, padded.words, set(padded.eos_ids)) == (70, 3, {2, 3})
    assert padded.tokens[2:] == [b""] * 68
    assert padded.unpack(padded.pack(padded.trie.tokens_below(0))).tolist() == [0, 1]
    assert Vocabulary.from_bytes(tokens, [2], size=2).tokens == [b"a", b"b"]


def test_key_tells_vocabularies_apart() -> None:
    keys = {
        Vocabulary.from_bytes(*arguments).key
        for arguments in (
            ([b"a", b"bc", b""], [2]),
            ([b"ab", b"c", b""], [2]),
            ([b"a", b"bc", b"", b""], [2]),
            ([b"a", b"bc", b"", b""], [3]),
        )
    }
    assert len(keys) == 4
    assert Vocabulary.from_bytes([b"a"], []).key == Vocabulary.from_bytes([b"a"], []).key


token_lists = st.lists(st.binary(max_size=5) | st.text("ab", max_size=6).map(str.encode))


@given(token_lists)
def test_trie_holds_the_tokens(tokens: list[bytes]) -> None:
    trie = build_trie(tokens)
    prefixes = {token[:size] for token in tokens if token for size in range(len(token) + 1)}
    assert trie.nodes == len(prefixes | {b""})
    for i, token in enumerate(tokens):
        if token:
            assert i in trie.tokens_at(trie.find(token))
            assert trie.find(token) == trie.token_node[i]
    for prefix in prefixes:
        node = trie.find(prefix)
        below = {i for i, token in enumerate(tokens) if token and token.startswith(prefix)}
        assert set(trie.tokens_below(node).tolist()) == below
        assert trie.depth[node] == len(prefix)
    for node in range(1, trie.nodes):
        assert trie.children(int(trie.parent[node]))[int(trie.byte[node])] == node
        assert node < trie.end[node] <= trie.end[trie.parent[node]]


@pytest.mark.parametrize("few", [True, False])
def test_string_body_of_a_real_vocabulary(vocabulary: Vocabulary, few: bool) -> None:
    allowed = range(0x30, 0x3A) if few else [b for b in range(0x20, 0x7F) if b not in b'"\\']
    dfa = Dfa((tuple((byte, byte, 0) for byte in allowed),), frozenset({0}))
    walked = vocabulary.trie.walk(dfa, 0, in_json=False)
    assert sorted(walked.ids.tolist()) == [
        i for i, token in enumerate(vocabulary.tokens) if token and set(token) <= {*allowed}
    ]


@given(st.sets(st.integers(0, 99)), st.integers(100, 130))
def test_masks_have_the_layout_of_vllm(ids: set[int], size: int) -> None:
    vocabulary = Vocabulary.from_bytes([b"a"] * 100, [], size=size)
    mask = vocabulary.pack(ids)
    for token in range(vocabulary.words * 32):
        bit = (int(mask[token // 32]) >> (token % 32)) & 1
        assert bit == (token in ids)
    assert vocabulary.unpack(mask).tolist() == sorted(ids)
    assert (vocabulary.pack(np.array(sorted(ids), dtype=np.int64)) == mask).all()
