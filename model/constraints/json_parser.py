"""LM Format Enforcer's parser interface over the threads of a compiled constraint.

Each byte is one latin-1 character, so that a token of any vocabulary is a plain string, text of any
script needs no decoding, and a token may end in the middle of a character.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

from lmformatenforcer import CharacterLevelParser

from model.constraints.containers import Value
from model.constraints.shapes import Constraint, StringLang
from model.constraints.threads import Done, Interner, Plain, String, Text, Thread, Threads

_PLAIN = re.compile(rb"[ !#-\[\]-~]+").fullmatch
"""Printable ASCII that needs no escape; other characters may be cut within their bytes."""


def start(constraint: Constraint, make: Interner) -> Threads:
    """The threads before the first byte of an answer."""
    done = make(Done)
    if isinstance(constraint.root, StringLang):
        return (make(Text, make(Plain, constraint.root, 0, 0, done), ()),)
    return (make(Value, constraint.root, done),)


def advance(threads: Threads, byte: int) -> Threads:
    """All threads after one more byte, each once; none when the byte is not allowed."""
    if len(threads) == 1:
        return threads[0].step(byte)
    return tuple(dict.fromkeys(after for thread in threads for after in thread.step(byte)))


def read(threads: Threads, text: bytes) -> Threads:
    """All threads after more bytes. Within strings, plain characters are read in one go."""
    found = _read_plain(threads, text.decode()) if _PLAIN(text) else None
    if found is not None:
        return found
    for byte in text:
        threads = advance(threads, byte)
    return threads


def _read_plain(threads: Threads, text: str) -> Threads | None:
    """The threads after plain characters; None unless all are within strings."""
    found: list[Thread] = []
    for thread in threads:
        if type(thread) is not String or thread.partial:
            return None
        found += thread.read(text)
    return tuple(found) if len(found) < 2 else tuple(dict.fromkeys(found))


class JsonParser(CharacterLevelParser):
    """An immutable, hashable parser state; `cache_key` is the set of its threads."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads

    @classmethod
    def of(cls, constraint: Constraint) -> JsonParser:
        """The parser before the first byte."""
        return cls(start(constraint, Interner(constraint.style, constraint)))

    def add_character(self, new_character: str) -> JsonParser:
        """The parser after one more byte, given as a latin-1 character; dead if not allowed."""
        return JsonParser(advance(self.threads, ord(new_character)))

    def get_allowed_characters(self) -> str:
        """The bytes that may come next, as latin-1 characters."""
        allowed = {
            byte for thread in self.threads for byte in thread.first_bytes if thread.step(byte)
        }
        return "".join(map(chr, sorted(allowed)))

    def can_end(self) -> bool:
        return any(thread.can_end for thread in self.threads)

    def shortcut_key(self) -> Hashable | None:
        return None  # automaton.py has ready masks for whole strings

    def cache_key(self) -> Hashable | None:
        return frozenset[Thread](self.threads)

    def matches(self, text: str | bytes) -> bool:
        """Whether a whole answer is allowed."""
        threads = self.threads
        for byte in text.encode() if isinstance(text, str) else text:
            threads = advance(threads, byte)
            if not threads:
                return False
        return any(thread.can_end for thread in threads)
