"""Walks of the vocabulary's trie, held against the threads of the parser, byte by byte."""

from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import assume, given
from hypothesis import strategies as st

from model.constraints import tables, trie_walk
from model.constraints.dfa import Dfa
from model.constraints.partials import Partial
from model.constraints.profiles import live_places
from model.constraints.shapes import STYLES, StringLang
from model.constraints.threads import Done, Interner, Plain, String, Text
from model.constraints.trie import NOT_COUNTED, Trie, build_trie

QUOTE = ord('"')
CHARACTERS = '\x00\b\x1f !"\\a~\x7f\x80é\u07ff\u0800日\ud7ff\ue000\uffff\U00010000😀\U0010ffff'

trie_walk.warm_up()  # compiled code is loaded, or made, outside of any example's time

Place = tuple[int, Partial, int]
"""State, what is half read, and the characters begun."""


@st.composite
def langs(draw: st.DrawFn) -> StringLang:
    """A language of up to four states, whose edges begin and end around the characters."""
    states = draw(st.integers(1, 4))
    bounds = sorted({0, *map(ord, CHARACTERS), *(ord(c) + 1 for c in CHARACTERS), 0x110000})
    rows = []
    for _ in range(states):
        cuts = [*draw(st.sets(st.sampled_from(bounds), max_size=6)), 0, 0x110000]
        pieces = [(lo, hi - 1) for lo, hi in zip(sorted(cuts), sorted(cuts)[1:], strict=False)]
        row = [
            (max(lo, first), min(hi, last), draw(st.integers(0, states - 1)))
            for lo, hi in pieces
            if draw(st.booleans())
            for first, last in ((0, 0xD7FF), (0xE000, 0x10FFFF))
            if max(lo, first) <= min(hi, last)
        ]
        rows.append(row)
    accepting = draw(st.sets(st.integers(0, states - 1), min_size=1))
    table = tables.trim(rows, accepting)
    minimum = draw(st.integers(0, 3))
    maximum = draw(st.none() | st.integers(minimum, 5))
    return StringLang(Dfa(tuple(map(tuple, table)), frozenset(accepting)), minimum, maximum)


def spelled(character: str) -> st.SearchStrategy[bytes]:
    """A character as UTF-8, or escaped in either case."""
    units = character.encode("utf-16-be")
    escaped = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    ways = [character.encode(), escaped.encode(), escaped.upper().replace("\\U", "\\u").encode()]
    return st.sampled_from(ways)


pieces = st.sampled_from(
    [b"\\b", b"\\n", b'\\"', b"\\\\", b"\\/", b"\\", b'"', b"\xc0\x80", b"\xff"]
)
texts = st.lists(st.sampled_from(CHARACTERS).flatmap(spelled) | pieces, max_size=4).map(b"".join)
tokens = st.tuples(texts, st.integers(0, 12), st.integers(0, 12)).map(
    lambda drawn: drawn[0][drawn[1] : len(drawn[0]) - drawn[2]]
)


def reached(trie: Trie, thread: Text, node: int) -> dict[int, Place]:
    """The place at each node that the thread reads on to."""
    found: dict[int, Place] = {}
    waiting = [(node, thread, 0)]
    while waiting:
        at, before, read = waiting.pop()
        assert isinstance(before.content, Plain)
        found[at] = (before.content.state, before.partial, read)
        for byte, child in trie.children(at).items():
            for after in before.step(byte):
                if isinstance(after, Text):
                    waiting.append((child, after, read + (not before.partial)))
    return found


@given(langs(), st.lists(tokens, max_size=12), st.booleans(), texts, st.data())
def test_walks_agree_with_threads(
    lang: StringLang, tokens: list[bytes], in_json: bool, before: bytes, data: st.DataObject
) -> None:
    assume(not lang.is_empty)
    trie = build_trie([*tokens, *(before + token for token in tokens), b'"'])
    make = Interner(STYLES["flexible"])
    thread: Text = make(String if in_json else Text, make(Plain, lang, 0, 0, make(Done)), ())
    for byte in before:
        following = [t for t in thread.step(byte) if isinstance(t, Text)]
        if not following:
            break
        (thread,) = following
    content, node = thread.content, data.draw(st.integers(0, trie.nodes - 1))
    assert isinstance(content, Plain)
    expected = reached(trie, thread, node)
    ends = trie.children_by(QUOTE)

    length = lang.lengthen(content.length, 1) if thread.partial else content.length
    live = live_places(lang, length, trie.levels) if lang.is_counted else NOT_COUNTED
    walked = trie.walk(
        lang.dfa, content.state, thread.partial, node, in_json=in_json, ends=ends, live=live
    )

    assert sorted(zip(walked.ids.tolist(), walked.id_reads.tolist(), strict=True)) == sorted(
        (token, expected[at][2])
        for token, at in enumerate(trie.token_node.tolist())
        if at in expected and at != node
    )
    exits = zip(walked.exits.tolist(), walked.exit_states, walked.exit_reads, strict=True)
    assert sorted(exits) == sorted(
        (trie.children(at)[QUOTE], state, read)
        for at, (state, partial, read) in expected.items()
        if not partial and QUOTE in trie.children(at)
    )


@given(langs())
def test_what_never_refuses_takes_every_character_for_ever(lang: StringLang) -> None:
    assume(not lang.is_empty)
    dfa = lang.dfa
    reached = [0]
    for state in reached:
        reached += {target for _, _, target in dfa.edges[state]}.difference(reached)
    takes_all = all(
        dfa.step(state, ord(character)) is not None for state in reached for character in CHARACTERS
    )
    assert trie_walk.never_refuses(*dfa.arrays, 0) == takes_all


def test_warming_up_stays_within_its_arrays() -> None:
    """Machine code does not check indices, so that a wrong one is seen only as plain Python."""
    code = "from model.constraints import trie_walk; trie_walk.warm_up()"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
