"""Walks through constraints for tests: random answers, and the judge they must satisfy."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from referencing import Registry

from model.constraints.document import validator_for
from model.constraints.json_parser import JsonParser, advance, start
from model.constraints.schema import compile_schema
from model.constraints.shapes import EVERY_SPELLING, STYLES, Constraint
from model.constraints.threads import Interner, Threads

CLOSING = b'"}]0123456789:elsu,{[\\'
"""Bytes that lead to an end soon, the best ones first."""


def constraint_of(schema: Any, **options: Any) -> Constraint:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    style = options.pop("style", EVERY_SPELLING)
    return Constraint(compile_schema(text, **options), style)


def accepts(schema: Any, text: str | bytes, **options: Any) -> bool:
    return JsonParser.of(constraint_of(schema, **options)).matches(text)


def walk(constraint: Constraint, chance: random.Random, free_steps: int = 60) -> bytes:
    """A random answer: `free_steps` bytes at will, then the shortest way out that is seen."""
    threads = start(constraint, Interner(constraint.style))
    text = bytearray()
    while True:
        allowed = allowed_bytes(threads)
        can_end = any(thread.can_end for thread in threads)
        if can_end and (not allowed or len(text) > free_steps or chance.random() < 0.3):
            return bytes(text)
        assert allowed, f"a dead end after {bytes(text)!r}"
        byte = chance.choice(allowed) if len(text) < free_steps else _way_out(allowed, chance)
        text.append(byte)
        threads = advance(threads, byte)
        assert len(text) < 20_000, f"no end in sight: {bytes(text[:200])!r}"


def allowed_bytes(threads: Threads) -> list[int]:
    return sorted({b for thread in threads for b in thread.first_bytes if thread.step(b)})


def _way_out(allowed: list[int], chance: random.Random) -> int:
    for byte in CLOSING:
        if byte in allowed and chance.random() < 0.8:
            return byte
    return chance.choice(allowed)


def is_valid(schema: Any, text: bytes) -> bool:
    """Whether an answer is strict JSON without a key twice, and valid for jsonschema."""
    value = json.loads(text.decode(), parse_constant=_refuse, object_pairs_hook=_no_key_twice)
    return bool(validator_for(schema)(schema, registry=Registry()).is_valid(value))


def compact(constraint: Constraint) -> Constraint:
    return replace(constraint, style=STYLES["none"])


def _refuse(name: str) -> None:
    raise ValueError(name)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), "a key came twice"
    return dict(pairs)
