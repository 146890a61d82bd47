"""Regular expressions as languages of whole texts: what `search` finds, exactly or not at all.

A pattern has two readers: Python's `re`, which judges answers through jsonschema, and ECMA 262,
which JSON Schema names. `compile_pattern` gives a language inside both readings, or with `wide`
one that contains both; they are equal for patterns that mean the same to both. Syntax that only
Python knows (`\\A`, `(?i)`, `(?P<name>)`) has Python's meaning; what Python's `re` refuses is
refused here too.

The flow: pattern -> Python's parse tree -> regex_program.py -> regex_matcher.py -> Dfa.
"""

from __future__ import annotations

import re
import threading
import warnings
from importlib import import_module
from typing import Any

from model.constraints.dfa import Dfa
from model.constraints.dfa_cache import DfaCache
from model.constraints.regex_matcher import Matcher
from model.constraints.regex_program import Mode, Program, UnsupportedPattern
from model.constraints.tables import TooComplex

__all__ = ["TooComplex", "UnsupportedPattern", "compile_pattern"]

MAX_PATTERN_LENGTH = 20_000
"""Characters a pattern may have."""
MAX_NESTING = 50
"""Groups within groups; Python's parser and ours recurse this deep and no deeper."""
_python_parser: Any = import_module("re._parser")
_cache = DfaCache(max_edges=500_000, refusals=(UnsupportedPattern, TooComplex))


def compile_pattern(pattern: str, *, wide: bool = False, anchored: bool = False) -> Dfa:
    """The texts in which the pattern is found, or with `anchored` those it matches as a whole.

    Raises UnsupportedPattern or TooComplex.
    """
    return _cache.get((pattern, wide, anchored), lambda: _compile(pattern, wide, anchored))


def _compile(pattern: str, wide: bool, anchored: bool) -> Dfa:
    try:
        return _language(pattern, wide, anchored)
    except RecursionError:  # called from deep within, or nested where _nesting does not see it
        raise UnsupportedPattern("pattern with groups nested too deep") from None


def _language(pattern: str, wide: bool, anchored: bool) -> Dfa:
    tree = _parse(pattern)
    program = Program()
    mode = Mode(tree.state.flags, wide)
    if anchored:
        start = program.sequence(tree, program.end, mode)
    else:
        start = program.search(program.sequence(tree, program.match, mode))
    return Matcher(program, start).language()


_parser_lock = threading.Lock()
# Python warns of sets that a later version may read otherwise.
_SET_WARNINGS = re.compile(r"\[\[|\[\^\[|--|&&|~~|\|\|")


def _parse(pattern: str) -> Any:
    """Python's own parse tree; raises UnsupportedPattern for what Python refuses."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise UnsupportedPattern(f"pattern longer than {MAX_PATTERN_LENGTH} characters")
    if _nesting(pattern) > MAX_NESTING:
        raise UnsupportedPattern(f"pattern with groups nested deeper than {MAX_NESTING}")
    try:
        if not _SET_WARNINGS.search(pattern):
            return _python_parser.parse(pattern)
        with _parser_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return _python_parser.parse(pattern)
    except re.error as error:
        hint = next((hint for part, hint in _HINTS.items() if part in error.msg), "")
        raise UnsupportedPattern(
            f"not a regular expression: {error.msg}{hint}", error.pos
        ) from None
    except OverflowError as error:
        raise UnsupportedPattern(f"not a regular expression: {error}") from None


_HINTS = {
    r"bad escape \p": ", property escapes are ECMA's alone: list the characters as ranges",
    "bad escape \\P": ", property escapes are ECMA's alone: list the characters as ranges",
    "unknown extension ?<": ", a named group is written (?P<name>...) or left without a name",
}

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?|[()]", re.DOTALL)


def _nesting(pattern: str) -> int:
    depth = deepest = 0
    for part in _TOKEN.findall(pattern):
        depth += (part == "(") - (part == ")")
        deepest = max(deepest, depth)
    return deepest
