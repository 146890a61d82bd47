"""Walks through constraints for tests: random answers, and the judge they must satisfy."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from referencing import Registry

from model.constraints.containers import Named
from model.constraints.document import validator_for
from model.constraints.json_parser import JsonParser, advance, start
from model.constraints.schema import compile_schema
from model.constraints.shapes import EVERY_SPELLING, Constraint
from model.constraints.threads import Interner, Plain, String, Threads, Tracked

CLOSING = b'}]":0123456789elsu,{['
"""Bytes that lead to an end soon where no string is open, the best ones first."""


def constraint_of(schema: Any, **options: Any) -> Constraint:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    style = options.pop("style", EVERY_SPELLING)
    return Constraint(compile_schema(text, **options), style)


def accepts(schema: Any, text: str | bytes, **options: Any) -> bool:
    return JsonParser.of(constraint_of(schema, **options)).matches(text)


def walk(constraint: Constraint, chance: random.Random, free_steps: int = 60) -> bytes:
    """A random answer: `free_steps` bytes at will, then the shortest way out that is seen."""
    threads = start(constraint, Interner(constraint.style, constraint))
    text = bytearray()
    while True:
        can_end = any(thread.can_end for thread in threads)
        is_free = len(text) < free_steps
        if can_end and (not is_free or chance.random() < 0.3):
            return bytes(text)
        byte = _next_byte(threads, chance, is_free=is_free)
        if byte is None:
            assert can_end, f"a dead end after {bytes(text)!r}"
            return bytes(text)
        text.append(byte)
        threads = advance(threads, byte)
        assert len(text) < 20_000, f"no end in sight: {bytes(text[:200])!r}"


def _next_byte(threads: Threads, chance: random.Random, *, is_free: bool) -> int | None:
    """An allowed byte: any at all, or one that leads to an end soon."""
    bytes_ = sorted({byte for thread in threads for byte in thread.first_bytes})
    chance.shuffle(bytes_)
    if not is_free:
        is_inside = any(isinstance(thread, String) for thread in threads)
        inside = [ord('"'), *_of_unfinished_texts(threads)]
        bytes_ = [*_of_owed_names(threads), *(inside if is_inside else CLOSING), *bytes_]
    return next((b for b in bytes_ if any(thread.step(b) for thread in threads)), None)


def _of_owed_names(threads: Threads) -> Iterator[int]:
    """The bytes that go on towards a property name which must still come."""
    for thread in threads:
        if not (isinstance(thread, String) and isinstance(thread.content, Named)):
            continue
        trie, owed = thread.content.object.shape.trie, _owed(thread.content)
        if thread.partial and owed:
            yield from (byte for byte in range(0x80, 0xC0) if thread.step(byte))
        elif (index := trie.index(thread.content.node)) >= 0 and owed >> index & 1:
            yield ord('"')
        else:
            children = trie.children(thread.content.node).items()
            yield from (chr(c).encode()[0] for c, child in children if trie.reach(child) & owed)


def _of_unfinished_texts(threads: Threads) -> Iterator[int]:
    """The bytes that bring a string nearer to a text of its language."""
    for thread in threads:
        if isinstance(thread, String) and isinstance(thread.content, Plain | Tracked):
            lang, state = thread.content.lang, thread.content.state
            away = lang.dfa.distances
            nearer = (lo for lo, _, to in lang.dfa.edges[state] if away[to] < away[state])
            yield from (chr(lo).encode()[0] for lo in nearer)


def _owed(content: Named) -> int:
    return content.object.shape.owed(content.object.used)


def is_valid(schema: Any, text: bytes) -> bool:
    """Whether an answer is strict JSON without a key twice, and valid for jsonschema."""
    value = json.loads(text.decode(), parse_constant=_refuse, object_pairs_hook=_no_key_twice)
    return bool(validator_for(schema)(schema, registry=Registry()).is_valid(value))


def _refuse(name: str) -> None:
    raise ValueError(name)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), "a key came twice"
    return dict(pairs)
