"""xgrammar, as vLLM calls it; "loose" turns its strict mode off.

Strict mode, the default, forbids properties and items that the schema does not name.
"""

from __future__ import annotations

import json
from typing import Any

import xgrammar

from benchmarks.peers import Grammar, Matcher, Peer, Refused
from model.constraints.vocabulary import Vocabulary


def make(vocabulary: Vocabulary, variant: str) -> Peer:
    return XgrammarPeer(vocabulary, strict=variant != "loose")


class XgrammarPeer(Peer):
    def __init__(self, vocabulary: Vocabulary, *, strict: bool) -> None:
        super().__init__(vocabulary)
        self._strict = strict
        self._tokens = xgrammar.TokenizerInfo(
            vocabulary.tokens,
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=vocabulary.size,
            stop_token_ids=sorted(vocabulary.eos_ids),
        )
        self._compiler: Any = None

    def compile(self, schema: Any) -> Grammar:
        if self._compiler is None:  # it starts threads, which must not be there before a fork
            self._compiler = xgrammar.GrammarCompiler(self._tokens, cache_enabled=False)
        try:
            compiled = self._compiler.compile_json_schema(
                json.dumps(schema), strict_mode=self._strict
            )
        except (RuntimeError, ValueError) as error:
            raise Refused(str(error)) from error
        return XgrammarGrammar(self.vocabulary, compiled)

    def new_mask(self) -> Any:
        return xgrammar.allocate_token_bitmask(1, self.vocabulary.size)


class XgrammarGrammar(Grammar):
    def __init__(self, vocabulary: Vocabulary, compiled: Any) -> None:
        super().__init__(vocabulary)
        self._compiled = compiled

    def start(self) -> Matcher:
        return XgrammarMatcher(self._compiled)


class XgrammarMatcher(Matcher):
    def __init__(self, compiled: Any) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled)

    def fill(self, mask: Any) -> None:
        self._matcher.fill_next_token_bitmask(mask, 0)

    def advance(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def can_end(self) -> bool:
        return bool(self._matcher.is_completed())
