"""outlines_core, the engine behind vLLM's "outlines": a schema as one regular expression."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import outlines_core
from outlines_core.json_schema import build_regex_from_schema

from benchmarks.peers import Grammar, Matcher, Peer, Refused
from model.constraints.vocabulary import Vocabulary


def make(vocabulary: Vocabulary, _variant: str) -> Peer:
    return OutlinesPeer(vocabulary)


class OutlinesPeer(Peer):
    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary)
        ids: dict[bytes, list[int]] = {}
        for i, token in enumerate(vocabulary.tokens):
            if token:
                ids.setdefault(token, []).append(i)
        self._tokens = outlines_core.Vocabulary(min(vocabulary.eos_ids), ids)

    def compile(self, schema: Any) -> Grammar:
        try:
            regex = build_regex_from_schema(json.dumps(schema))
            index = outlines_core.Index(regex, self._tokens)
        except (ValueError, TypeError, RuntimeError) as error:
            raise Refused(str(error)) from error
        return OutlinesGrammar(self.vocabulary, index)


class OutlinesGrammar(Grammar):
    def __init__(self, vocabulary: Vocabulary, index: Any) -> None:
        super().__init__(vocabulary)
        self._index = index

    def start(self) -> Matcher:
        return OutlinesMatcher(outlines_core.Guide(self._index))


class OutlinesMatcher(Matcher):
    def __init__(self, guide: Any) -> None:
        self._guide = guide

    def fill(self, mask: Any) -> None:
        row = np.asarray(mask)
        self._guide.write_mask_into(row.ctypes.data, row.size, row.itemsize)

    def advance(self, token: int) -> bool:
        if not self._guide.accepts_tokens([token]):
            return False
        self._guide.advance(token, return_tokens=False)
        return True

    def can_end(self) -> bool:
        return bool(self._guide.is_finished())
