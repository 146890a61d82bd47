"""Patterns as languages: judged by Python's `re`, and by `re` made to read them as ECMA does."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from model.constraints import dfa
from model.constraints.regex import TooComplex, UnsupportedPattern, compile_pattern

# (as written, as Python would have to write it to mean what ECMA means)
ATOMS = [
    ("a", "a"), ("b", "b"), ("[ab]", "[ab]"), ("[^a]", "[^a]"), ("é", "é"), (r"\.", r"\."),
    (".", "[^\n\r\u2028\u2029]"), (r"\d", "[0-9]"), (r"\w", "[A-Za-z0-9_]"), (r"\D", "[^0-9]"),
    (r"\s", r"[\s\ufeff]"), (r"\S", "[^\\s\ufeff]"), (r"\W", "[^A-Za-z0-9_]"),
    (r"[^\w.]", "[^A-Za-z0-9_.]"),
    ("^", "^"), ("$", r"\Z"), (r"\b", r"(?a:\b)"), (r"\B", r"(?:(?a:\B)|(?!.|\n)(?<!.)(?<!\n))"),
]  # fmt: skip
Pair = tuple[str, str]


def _group(opening: str, pair: Pair) -> Pair:
    return f"{opening}{pair[0]})", f"{opening}{pair[1]})"


def _extend(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    pairs = st.lists(inner, min_size=1, max_size=4)
    openings = st.sampled_from(["(", "(?:", "(?=", "(?!"])
    suffix = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?", "{,2}", "{2,}"])
    return st.one_of(
        pairs.map(lambda ps: ("".join(p[0] for p in ps), "".join(p[1] for p in ps))),
        pairs.map(
            lambda ps: _group("(?:", ("|".join(p[0] for p in ps), "|".join(p[1] for p in ps)))
        ),
        st.tuples(openings, inner).map(lambda drawn: _group(*drawn)),
        st.tuples(inner, suffix).map(
            lambda drawn: (f"(?:{drawn[0][0]}){drawn[1]}", f"(?:{drawn[0][1]}){drawn[1]}")
        ),
    )


patterns = st.recursive(st.sampled_from(ATOMS), _extend, max_leaves=8)
texts = st.lists(st.text(alphabet="ab.é1\n \r٣\ufeff", max_size=6), min_size=8, max_size=8)


@settings(max_examples=150, deadline=None)
@given(patterns, texts)
@example(("(?:^|a)+$", r"(?:^|a)+\Z"), ["", "a", "ba", "aa", "b", "a\n", "\n", "ab"])
@example(("(?:(?!ab).)*$", "(?:(?!ab)[^\n\r\u2028\u2029])*\\Z"), ["ab", "a", "b", "ba\n"] * 2)
@example((r"\Bé", r"(?a:\B)é"), ["é", "aé", "éé", " é"] * 2)
def test_between_both_readings(pair: Pair, examples: list[str]) -> None:
    written, as_ecma = pair
    try:
        narrow, wide = compile_pattern(written), compile_pattern(written, wide=True)
        whole = compile_pattern(written, anchored=True)
    except TooComplex:
        assume(False)
    for text in examples:
        readings = {bool(re.search(written, text)), bool(re.search(as_ecma, text))}
        if narrow.matches(text):
            assert readings == {True}
        if True in readings:
            assert wide.matches(text)
        if whole.matches(text):
            assert re.fullmatch(written, text)
    assert dfa.is_subset(narrow, wide)
    assert dfa.is_subset(whole, narrow)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.sampled_from([(a, a) for a in ["a", "b", "[ab]", "[^a]", "^", r"\A", r"\Z", "(?s:.)"]]),
        _extend,
        max_leaves=8,
    ),
    texts,
)
def test_exact_where_the_readings_agree(pair: Pair, examples: list[str]) -> None:
    language = compile_pattern(pair[0])
    assert compile_pattern(pair[0], wide=True) == language
    whole = compile_pattern(pair[0], anchored=True)
    for text in examples:
        assert language.matches(text) == bool(re.search(pair[0], text))
        assert whole.matches(text) == bool(re.fullmatch(pair[0], text))


CASES = [
    ("^Fifty", ["Fifty", "Fifty-one"], ["fifty", "A Fifty", ""]),
    ("^a|b$", ["a", "ab", "ax", "xb"], ["xa", "bx", ""]),
    ("^$", [""], ["a", "\n"]),
    ("", ["", "anything"], []),
    ("(^a)", ["ab"], ["ba"]),
    ("^[0-9a-f]{8}-[0-9a-f]{4}$", ["0123abcd-00ff"], ["0123abcd-00fg", "x0123abcd-00ff"]),
    (r"^\d{4}-(0[1-9]|1[0-2])$", ["2024-12"], ["2024-13", "2024-1", "٢٠٢٤-12"]),
    ("^(?!.*secret)[a-z ]+$", ["a word"], ["a secret word", "secret"]),
    (r"^(?=.*\d)(?=.*[a-z]).{4,8}$", ["abc1", "1a34"], ["abcd", "1234", "ab1", "abcdefgh1"]),
    (r"^(?:(?!--)[a-z-])+$", ["a-b"], ["a--b"]),
    (r"^(?:(?!.*ab)[abc])+$", ["ba", "bbca"], ["cab", "ab"]),
    (r"\bcat\b", ["cat", "a cat.", "cat-egory"], ["concat", "cats", "écat"]),
    (r"a\b", ["a", "a b"], ["ab", "aé"]),
    (r"\Ba", ["ba"], ["a", " a", "éab"]),
    (r"^(a+)+$", ["a" * 40], ["a" * 40 + "b"]),
    ("(?i)^straße$", ["STRAßE", "straße"], ["strasse"]),
    ("(?i:k)elvin", ["Kelvin", "kelvin"], ["KELVIN"]),
    (r"(?m)^b$", ["a\nb", "b\nc"], ["ab", "a\rb"]),
    (r"(?s)^a.b$", ["a\nb"], ["ab"]),
    (r"(?x) a  b # both", ["ab"], ["a b"]),
    (r"(?P<year>\d+)", ["7"], ["x"]),
    (r"[]a]", ["]", "a"], ["b"]),
    (r"^[^\s]+$", ["é", "😀"], ["a b", "\ufeff", "\x1c"]),
    (r"\/\-\_\$\u00e9\x41", ["/-_$éA"], ["/-_$A"]),
    (r"(?<=-)a", ["b-a"], ["a", "ba"]),
    (r"(?<!-)a", ["a", "ba"], ["-a"]),
    (r"(?!)", [], ["", "a"]),
    ("[\ud800-\udbff]|b", ["b"], ["a"]),
    (r"^(\{\{ .* \}\}|[1-9]\d*)$", ["{{ x }}", "10"], ["01", "{{x}}"]),
    (r"^\S(|(.|\n)*\S)$", ["a\n b"], [" a", "a "]),
    ("^[^]]+$", ["a[b"], ["a]b"]),
    (r"^.{3}$", ["😀é姓"], ["😀é"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), CASES, ids=[case[0][:30] for case in CASES])
def test_cases(pattern: str, good: list[str], bad: list[str]) -> None:
    language = compile_pattern(pattern)
    for text in good:
        assert re.search(pattern, text)
        assert language.matches(text), text
    for text in bad:
        assert not language.matches(text), text


def test_a_last_newline_is_left_to_python() -> None:
    assert re.search("^a$", "a\n")
    assert not compile_pattern("^a$").matches("a\n")
    assert compile_pattern("^a$", wide=True).matches("a\n")


def test_only_syntax_that_both_know_is_compiled() -> None:
    pattern = r"^[[a]b$"  # Python warns of a possible nested set
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_pattern(pattern).matches("[b")


REFUSED = {
    r"(a)\1": "backreference",
    r"(?P<x>a)(?P=x)": "backreference",
    r"(a)?(?(1)b|c)": "conditional",
    r"(?>a+)": "atomic",
    r"a++": "possessive",
    r"(?<=ab)c": "lookbehind",
    r"foo**": "multiple repeat at position 4",
    r"\p{L}": "list the characters as ranges at position 0",
    r"\cA": "bad escape",
    r"(?<year>\d)": r"written \(\?P<name>",
    r"[^]": "unterminated character set",
    r"[a": "unterminated character set at position 0",
    r"a{99999999999}": "repetition number is too large",
    "(" * 400 + ")" * 400: "nested deeper than",
    "(?#[)" + "(" * 900 + ")" * 900: "nested too deep",
    "a" * 30_000: "longer than",
}


@pytest.mark.parametrize(("pattern", "reason"), REFUSED.items(), ids=[key[:20] for key in REFUSED])
def test_refusals_say_why(pattern: str, reason: str) -> None:
    for _ in range(2):  # the second answer comes from the cache
        with pytest.raises(UnsupportedPattern, match=reason):
            compile_pattern(pattern)


def test_a_refusal_knows_the_position() -> None:
    with pytest.raises(UnsupportedPattern) as refusal:
        compile_pattern("ab(c")
    assert refusal.value.position == 2
    assert refusal.value.reason == "not a regular expression: missing ), unterminated subpattern"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|b)*a(a|b){14}",
        "^(?:a?){5000}$",
        "((a{1000}){1000}){1000}",
        "(?:){1000000}",
        "(?:[a-z]b){900}[a-z]{3000}",
        "(?=.*a.{12})(?=.*b.{13})(?=.*c.{11})x",
        "(?:(?:(?:a{0,99}b){0,99}c){0,99}d){0,99}$",
        "^(?!(a|b)*a(a|b){14}$)",
        r"(?=(?!(?=(?!a*b.{9}).*c.{9}).*d.{9}).*e.{9})f",
    ],
)
def test_explosions_are_errors(pattern: str) -> None:
    with pytest.raises(TooComplex):
        compile_pattern(pattern)


def test_long_but_simple_patterns_compile() -> None:
    assert compile_pattern("^.{0,5000}$") == dfa.intersect(
        dfa.length_between(0, 5000), compile_pattern("^.*$")
    )
    words = [f"word{n:04d}" for n in range(1500)]
    assert compile_pattern("^(" + "|".join(words) + ")$") == dfa.literals(words)


@pytest.mark.parametrize("letter", ["d", "s", "w"])
@pytest.mark.parametrize("negated", [False, True])
def test_character_classes_hold_what_both_readings_hold(letter: str, negated: bool) -> None:
    every = [chr(c) for c in range(0x3000) if not 0xD800 <= c < 0xE000] + ["\ufeff", "𝟘", "😀"]
    pattern = f"\\{letter.upper() if negated else letter}"
    ecma = {"d": "[0-9]", "w": "[A-Za-z0-9_]", "s": r"(?:(?![\x1c-\x1f\x85])\s|\ufeff)"}[letter]
    narrow, wide = compile_pattern(pattern), compile_pattern(pattern, wide=True)
    for character in every:
        readings = [
            bool(re.search(pattern, character)),
            bool(re.search(ecma, character)) != negated,
        ]
        assert narrow.matches(character) == all(readings), hex(ord(character))
        assert wide.matches(character) == any(readings), hex(ord(character))
