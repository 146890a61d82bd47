"""LM Format Enforcer's own JSON parser, stepped character by character.

Its alphabet is that of the vocabulary's one-character tokens, as its TokenEnforcer has it. There
are no masks here: its token enforcer works on a quadratic store of prefixes (docs/performance.md).
"""

from __future__ import annotations

from typing import Any

from lmformatenforcer import CharacterLevelParser, CharacterLevelParserConfig, JsonSchemaParser

from benchmarks.peers import Grammar, Matcher, Peer, Refused
from model.constraints.vocabulary import Vocabulary


def make(vocabulary: Vocabulary, _variant: str) -> Peer:
    return LmfePeer(vocabulary)


class LmfePeer(Peer):
    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        texts = {token.decode(errors="replace")[:1] for token in vocabulary.tokens if token}
        self._alphabet = "".join(sorted(texts - {"\ufffd"}))

    def compile(self, schema: Any) -> Grammar:
        try:
            parser = JsonSchemaParser(schema, CharacterLevelParserConfig(alphabet=self._alphabet))
        except Exception as error:  # it raises whatever happens to go wrong inside
            raise Refused(f"{type(error).__name__}: {error}") from error
        return LmfeGrammar(self.vocabulary, parser)


class LmfeGrammar(Grammar):
    def __init__(self, vocabulary: Vocabulary, parser: CharacterLevelParser) -> None:
        super().__init__(vocabulary)
        self._parser = parser

    def start(self) -> Matcher:
        raise NotImplementedError("LM Format Enforcer's own parser is measured by text only")

    def accepts(self, text: str) -> bool:
        parser = self._parser
        try:
            for character in text:
                if character not in parser.get_allowed_characters():
                    return False
                parser = parser.add_character(character)
            return bool(parser.can_end())
        except Exception:  # noqa: BLE001 (see compile; its token enforcer then ends the text)
            return False
