"""What an automaton reads below a node of a vocabulary's trie, in machine code.

The functions with a leading underscore read a character's bytes, as threads.py does with objects.
What they share: `begin` and `edges` are a Dfa's EdgeArrays, `live` is as in `Trie.walk`, and `read`
counts the characters begun, the one being read included.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.constraints import token_sets
from model.constraints.machine_code import compiled, inlined
from model.constraints.partials import (
    ASTRAL,
    BYTES,
    ESCAPE,
    HEX_DIGITS,
    LOW_BACKSLASH,
    LOW_DIGITS,
    LOW_U,
    Partial,
)

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Live = NDArray[np.bool_]


class TrieArrays(NamedTuple):
    """What a walk needs of a Trie; see there."""

    byte: NDArray[np.uint8]
    depth: NDArray[np.int16]
    end: Int32
    first_token: Int32
    token_ids: Int32
    levels: int


Half = tuple[int, int, int, int]
"""A Partial filled up with zeros, for the machine code; _WHOLE between characters."""

_NONE = -1
_WHOLE: Half = (_NONE, 0, 0, 0)
_NOWHERE: tuple[int, Half] = (-1, _WHOLE)
_CHARACTERS = 0x110000 - 0x800  # without the surrogates
_QUOTE, _BACKSLASH, _U = b'"\\u'
_ESCAPES, _HEX = np.full(256, -1, dtype=np.int64), np.full(256, -1, dtype=np.int64)
_ESCAPES[list(b'"\\bfnrt')] = list(b'"\\\b\f\n\r\t')
_HEX[list(b"0123456789ABCDEF")] = _HEX[list(b"0123456789abcdef")] = range(16)
_ESCAPABLE = np.array([(0, 0x1F), (_QUOTE, _QUOTE), (_BACKSLASH, _BACKSLASH), (0x7F, 0x10FFFF)])
"""The characters that may be escaped: other ASCII needs none."""


def of(partial: Partial) -> Half:
    """What is half read, as `walk` takes it."""
    kind, a, b, c = (*partial, 0, 0, 0)[:4] if partial else _WHOLE
    return kind, a, b, c


@inlined
def _first_from(begin: Int64, edges: Int64, state: int, character: int) -> int:
    """The state's first edge that does not end before the character, or one past its last."""
    at: int = begin[state]
    end = begin[state + 1]
    while at < end:
        middle = (at + end) >> 1
        if edges[middle, 1] < character:
            at = middle + 1
        else:
            end = middle
    return at


@inlined
def _allows(
    begin: Int64, edges: Int64, live: Live, state: int, read: int, low: int, high: int
) -> bool:
    """Whether some character from low to high can be the one that makes them `read`."""
    if low > high:
        return False
    at, end = _first_from(begin, edges, state, low), begin[state + 1]
    while at < end and edges[at, 0] <= high:
        if live.size == 0 or live[edges[at, 2], read]:
            return True
        at += 1
    return False


@inlined
def _push(
    begin: Int64, edges: Int64, live: Live, state: int, read: int, character: int
) -> tuple[int, Half]:
    """After a whole character."""
    at = _first_from(begin, edges, state, character)
    if at == begin[state + 1] or edges[at, 0] > character:
        return _NOWHERE
    target = edges[at, 2]
    if live.size > 0 and not live[target, read]:
        return _NOWHERE
    return target, _WHOLE


@inlined
def _names(
    begin: Int64, edges: Int64, live: Live, state: int, read: int, low: int, high: int
) -> bool:
    """Whether a UTF-16 unit from low to high may begin an escape."""
    first, last = max(low, 0xD800), min(high, 0xDBFF)
    return (
        _allows(begin, edges, live, state, read, low, min(high, 0x1F))
        or _allows(begin, edges, live, state, read, max(low, 0x7F), high)
        or (
            first <= last
            and _allows(
                begin,
                edges,
                live,
                state,
                read,
                ASTRAL + (first - 0xD800 << 10),
                ASTRAL + (last - 0xD800 << 10) + 0x3FF,
            )
        )
    )


@inlined
def _bytes(
    begin: Int64, edges: Int64, live: Live, state: int, read: int, bits: int, rest: int, least: int
) -> tuple[int, Half]:
    """Within UTF-8, after some of a character's bits."""
    if rest == 0:
        return _push(begin, edges, live, state, read, bits)
    low = max(bits << 6 * rest, least)
    high = min(((bits + 1) << 6 * rest) - 1, 0x10FFFF)
    if not _allows(begin, edges, live, state, read, low, high):
        return _NOWHERE
    return state, (BYTES, bits, rest, least)


@inlined
def _first_byte(
    begin: Int64, edges: Int64, live: Live, in_json: bool, state: int, read: int, byte: int
) -> tuple[int, Half]:
    """After a character's first byte."""
    if in_json and (byte < 0x20 or byte == _QUOTE):
        return _NOWHERE
    if in_json and byte == _BACKSLASH:
        for at in range(len(_ESCAPABLE)):
            if _allows(begin, edges, live, state, read, _ESCAPABLE[at, 0], _ESCAPABLE[at, 1]):
                return state, (ESCAPE, 0, 0, 0)
        return _NOWHERE
    if byte < 0x80:
        return _push(begin, edges, live, state, read, byte)
    if byte < 0xC2 or byte > 0xF4:
        return _NOWHERE
    if byte < 0xE0:
        bits, rest, least = byte & 0x1F, 1, 0x80
    elif byte < 0xF0:
        bits, rest, least = byte & 0x0F, 2, 0x800
    else:
        bits, rest, least = byte & 0x07, 3, ASTRAL
    return _bytes(begin, edges, live, state, read, bits, rest, least)


@inlined
def _hex_digit(
    begin: Int64, edges: Int64, live: Live, state: int, read: int, value: int, digits: int
) -> tuple[int, Half]:
    """After some digits of an escape, or none of them."""
    shift = 4 * (4 - digits)
    low = value << shift
    if not _names(begin, edges, live, state, read, low, low + (1 << shift) - 1):
        return _NOWHERE
    if digits < 4:
        return state, (HEX_DIGITS, value, digits, 0)
    if 0xD800 <= value <= 0xDBFF:
        return state, (LOW_BACKSLASH, value - 0xD800, 0, 0)
    return _push(begin, edges, live, state, read, value)


@inlined
def _low_digit(
    begin: Int64,
    edges: Int64,
    live: Live,
    state: int,
    read: int,
    surrogate: int,
    value: int,
    digits: int,
) -> tuple[int, Half]:
    """After some digits of a low surrogate's escape."""
    shift = 4 * (4 - digits)
    first = max(value << shift, 0xDC00) - 0xDC00
    last = min((value << shift) + (1 << shift) - 1, 0xDFFF) - 0xDC00
    base = ASTRAL + (surrogate << 10)
    if not _allows(begin, edges, live, state, read, base + first, base + last):
        return _NOWHERE
    if digits < 4:
        return state, (LOW_DIGITS, surrogate, value, digits)
    return _push(begin, edges, live, state, read, base + first)


@inlined
def _step(
    begin: Int64,
    edges: Int64,
    live: Live,
    in_json: bool,
    state: int,
    read: int,
    half: Half,
    byte: int,
) -> tuple[int, Half]:
    """The state after one more byte, -1 where it is not allowed, and what is then half read.

    `read` counts the characters begun, this byte's included.
    """
    kind, a, b, c = half
    if kind == _NONE:
        return _first_byte(begin, edges, live, in_json, state, read, byte)
    if kind == BYTES:
        if byte & 0xC0 != 0x80:
            return _NOWHERE
        return _bytes(begin, edges, live, state, read, a << 6 | byte & 0x3F, b - 1, c)
    if kind == ESCAPE:
        if byte == _U:
            return _hex_digit(begin, edges, live, state, read, a, b)
        character = _ESCAPES[byte]
        return _NOWHERE if character < 0 else _push(begin, edges, live, state, read, character)
    if kind == LOW_BACKSLASH:
        return (state, (LOW_U, a, 0, 0)) if byte == _BACKSLASH else _NOWHERE
    if kind == LOW_U:
        return (state, (LOW_DIGITS, a, 0, 0)) if byte == _U else _NOWHERE
    digit = _HEX[byte]
    if digit < 0:
        return _NOWHERE
    if kind == HEX_DIGITS:
        return _hex_digit(begin, edges, live, state, read, a << 4 | digit, b + 1)
    return _low_digit(begin, edges, live, state, read, a, b << 4 | digit, c + 1)


@compiled
def never_refuses(begin: Int64, edges: Int64, start: int) -> bool:
    """Whether every character may come next, and again after any of them."""
    is_seen = np.zeros(len(begin) - 1, dtype=np.bool_)
    pending = np.empty(len(begin) - 1, dtype=np.int64)
    is_seen[start], pending[0], waiting = True, start, 1
    while waiting > 0:
        waiting -= 1
        state, characters = pending[waiting], 0
        for at in range(begin[state], begin[state + 1]):
            characters += edges[at, 1] - edges[at, 0] + 1
            target = edges[at, 2]
            if not is_seen[target]:
                is_seen[target], pending[waiting] = True, target
                waiting += 1
        if characters < _CHARACTERS:
            return False
    return True


@compiled
def walk(
    trie: TrieArrays,
    ends: Int32,
    begin: Int64,
    edges: Int64,
    live: Live,
    in_json: bool,
    start: int,
    half: Half,
    node: int,
) -> tuple[Int32, Int32, Int32, Int32, Int32]:
    """What `Trie.walk` gives."""
    tokens = trie.first_token[trie.end[node]] - trie.first_token[node]
    ids, id_read = np.empty(tokens, dtype=np.int32), np.empty(tokens, dtype=np.int32)
    size = trie.end[node] - node
    exits, exit_state, exit_read = (
        np.empty(size, dtype=np.int32),
        np.empty(size, dtype=np.int32),
        np.empty(size, dtype=np.int32),
    )
    state_at = np.empty(trie.levels, dtype=np.int64)  # by the depth below `node`
    read_at = np.empty(trie.levels, dtype=np.int64)
    half_at = np.empty((trie.levels, 4), dtype=np.int64)
    found, left = 0, 0
    here, top = node, trie.depth[node]
    while here < trie.end[node]:
        level = trie.depth[here] - top
        state, read, now = start, 0, half
        if level > 0:
            above = half_at[level - 1]
            read = read_at[level - 1] + (above[0] == _NONE)
            state, now = _step(
                begin,
                edges,
                live,
                in_json,
                state_at[level - 1],
                read,
                (above[0], above[1], above[2], above[3]),
                int(np.int64(trie.byte[here])),  # signed, as all the other numbers
            )
            if state < 0:
                here = trie.end[here]
                continue
            for place in range(trie.first_token[here], trie.first_token[here + 1]):
                ids[found], id_read[found] = trie.token_ids[place], read
                found += 1
        state_at[level], read_at[level] = state, read
        half_at[level, 0], half_at[level, 1] = now[0], now[1]
        half_at[level, 2], half_at[level, 3] = now[2], now[3]
        if now[0] == _NONE and ends[here] >= 0:
            exits[left], exit_state[left], exit_read[left] = ends[here], state, read
            left += 1
        here += 1
    return (
        ids[:found].copy(),
        id_read[:found].copy(),
        exits[:left].copy(),
        exit_state[:left].copy(),
        exit_read[:left].copy(),
    )


@cache
def warm_up() -> None:
    """Loads or compiles the code now, so that no row waits for it."""
    byte, depth = np.zeros(2, dtype=np.uint8), np.arange(2, dtype=np.int16)
    end, first_token = np.full(2, 2, dtype=np.int32), np.array([0, 0, 1], dtype=np.int32)
    token_ids, begin = np.zeros(1, dtype=np.int32), np.zeros(2, dtype=np.int64)
    edges = np.zeros((1, 3), dtype=np.int64)
    live = np.ones((1, 2), dtype=np.bool_)
    trie = TrieArrays(byte, depth, end, first_token, token_ids, 2)
    walk(trie, end, begin, edges, live, True, 0, _WHOLE, 0)
    never_refuses(begin, edges, 0)
    token_sets.warm_up()
