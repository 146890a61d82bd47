"""Engines for constrained decoding, behind one small interface: a file each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

from benchmarks.vocabularies import tokenize
from model.constraints.vocabulary import Vocabulary

NAMES = ("formline", "lmfe", "guidance", "xgrammar", "xgrammar-loose", "outlines")


class Refused(Exception):
    """The engine says that it does not support the schema. `keyword` where it names one."""

    def __init__(self, reason: str, keyword: str = "") -> None:
        super().__init__(reason)
        self.keyword = keyword


class Matcher(ABC):
    """One row's place in a grammar."""

    @abstractmethod
    def fill(self, mask: Any) -> None:
        """Writes the mask of the tokens allowed next into a mask made by `Peer.new_mask`."""

    @abstractmethod
    def advance(self, token: int) -> bool:
        """Moves on by one token; False if it is not allowed."""

    @abstractmethod
    def can_end(self) -> bool:
        """Whether the text so far is a whole answer."""


class Grammar(ABC):
    """A compiled schema, good for any number of rows."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    @abstractmethod
    def start(self) -> Matcher:
        """A matcher at the beginning."""

    def accepts(self, text: str) -> bool:
        """Whether the whole text is allowed as an answer, token by token."""
        matcher = self.start()
        tokens = tokenize(self.vocabulary, text.encode())
        return all(matcher.advance(token) for token in tokens) and matcher.can_end()


class Peer(ABC):
    """An engine, made ready for a vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    @abstractmethod
    def compile(self, schema: Any) -> Grammar:
        """Compiles a JSON schema; raises Refused."""

    def new_mask(self) -> Any:
        """A mask that `Matcher.fill` writes to: int32 words, as a numpy row or what it needs."""
        return self.vocabulary.empty_mask()


def load(name: str, vocabulary: Vocabulary) -> Peer:
    """The peer of that name, one of NAMES."""
    module, _, variant = name.partition("-")
    made: Peer = import_module(f"benchmarks.peers.{module}").make(vocabulary, variant)
    return made
