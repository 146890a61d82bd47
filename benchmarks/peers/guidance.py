"""llguidance, the engine behind vLLM's "guidance" backend."""

from __future__ import annotations

from typing import Any

import llguidance
import llguidance.numpy
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Grammar, Matcher, Peer, Refused
from benchmarks.vocabularies import tokenize
from model.constraints.vocabulary import Vocabulary


def make(vocabulary: Vocabulary, _variant: str) -> Peer:
    return GuidancePeer(vocabulary)


class GuidancePeer(Peer):
    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        wrapper = llguidance.TokenizerWrapper(_Tokens(vocabulary))
        self._tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=vocabulary.size)

    def compile(self, schema: Any) -> Grammar:
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        except (ValueError, TypeError) as error:
            raise Refused(str(error)) from error
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise Refused(matcher.get_error())
        return GuidanceGrammar(self.vocabulary, matcher)

    def new_mask(self) -> NDArray[np.int32]:
        return self.vocabulary.empty_mask().reshape(1, -1)


class _Tokens:
    """A vocabulary as llguidance wants it: special tokens as names in angle brackets."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = min(vocabulary.eos_ids)
        self.bos_token_id = None
        self.special_token_ids = [i for i, token in enumerate(vocabulary.tokens) if not token]
        self.tokens = [
            token or f"<special_{i}>".encode() for i, token in enumerate(vocabulary.tokens)
        ]

    def __call__(self, text: bytes) -> list[int]:
        return tokenize(self._vocabulary, text)


class GuidanceGrammar(Grammar):
    def __init__(self, vocabulary: Vocabulary, matcher: Any) -> None:
        super().__init__(vocabulary)
        self._matcher = matcher

    def start(self) -> Matcher:
        return GuidanceMatcher(self._matcher.deep_copy())


class GuidanceMatcher(Matcher):
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def fill(self, mask: Any) -> None:
        llguidance.numpy.fill_next_token_bitmask(self._matcher, mask, 0)

    def advance(self, token: int) -> bool:
        return bool(self._matcher.consume_token(token))

    def can_end(self) -> bool:
        return bool(self._matcher.is_accepting())
