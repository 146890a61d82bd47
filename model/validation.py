"""Whether an answer obeys its row's constraint, checked apart from the decoding that enforced it.

The caller's schema is hostile: nothing is fetched (the `referencing` registry is empty), and the
number of keyword checks is bounded. A pattern is matched by its automaton, in linear time; one
that has no automaton, which only other backends than ours let pass, under a time limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import regex
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from referencing import Registry

from model.constraints.document import validator_for
from model.constraints.regex import TooComplex, UnsupportedPattern, compile_pattern
from model.constraints.spec import ConstraintSpec

PATTERN_SECONDS = 0.5
KEYWORD_CHECKS = 200_000
Keyword = Callable[..., Iterator[ValidationError]]


class TooCostly(Exception):
    """Checking an answer against its constraint would take too long."""


def find_fault(text: str, constraint: ConstraintSpec) -> str | None:
    """What is wrong with an answer under `constraint`, or None; never raises, never hangs."""
    try:
        return _CHECKS[constraint.kind](text, constraint.text)
    except TooCostly as error:
        return f"the answer could not be checked: {error}"
    except RecursionError:
        return "the answer could not be checked: schema or answer is nested too deeply"


def _json_fault(text: str, json_schema: str) -> str | None:
    try:
        value = read_answer(text)
    except ValueError as fault:
        return f"not valid JSON: {fault}"
    try:
        broken = next(iter(_validator(json_schema)().iter_errors(value)), None)
    except (RecursionError, TooCostly):
        raise
    except Exception as fault:  # noqa: BLE001  odd schemas raise anything in jsonschema
        return f"the answer could not be checked: {type(fault).__name__}"
    if broken is None:
        return None
    return f"not valid at {broken.json_path}: keyword {broken.validator!r} of the schema is broken"


def _object_fault(text: str, _: str) -> str | None:
    try:
        return None if isinstance(read_answer(text), dict) else "not a JSON object"
    except ValueError as error:
        return f"not valid JSON: {error}"


def _choice_fault(text: str, choices: str) -> str | None:
    return None if text in json.loads(choices) else "not one of the choices"


def _regex_fault(text: str, pattern: str) -> str | None:
    return None if _matches(pattern, text, whole=True) else "does not match the regex"


def _grammar_fault(text: str, grammar: str) -> str | None:
    """The grammar's own backend is the only judge there is."""
    return None


_CHECKS: dict[str, Callable[[str, str], str | None]] = {
    "json": _json_fault,
    "json_object": _object_fault,
    "choice": _choice_fault,
    "regex": _regex_fault,
    "grammar": _grammar_fault,
}


def read_answer(text: str) -> Any:
    """The value of an answer in strict JSON: no NaN, no key twice. Raises ValueError."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("a key comes twice in one object")
    return record


def _matches(pattern: str, text: str, *, whole: bool = False) -> bool:
    """Whether the pattern is found in the text, or with `whole` matches all of it."""
    try:
        return compile_pattern(pattern, anchored=whole).matches(text)
    except (UnsupportedPattern, TooComplex):
        return _matches_in_time(rf"(?:{pattern})\Z" if whole else pattern, text, whole)


def _matches_in_time(pattern: str, text: str, whole: bool) -> bool:
    try:
        find = regex.match if whole else regex.search
        return find(pattern, text, timeout=PATTERN_SECONDS) is not None
    except TimeoutError:
        raise TooCostly("a pattern of the schema takes too long on it") from None
    except regex.error as error:
        raise TooCostly(f"a pattern of the schema is not understood: {error}") from None


@lru_cache(maxsize=256)
def _validator(json_schema: str) -> Callable[[], Any]:
    """A maker of validators, each with a budget of its own, for one schema."""
    schema = json.loads(json_schema)
    base = validator_for(schema)
    checks_formats = base.FORMAT_CHECKER
    return lambda: _bounded(base)(schema, registry=Registry(), format_checker=checks_formats)


def _bounded(base: Any) -> Any:
    budget = _Budget(KEYWORD_CHECKS)
    keywords = {**base.VALIDATORS, "pattern": _pattern, "patternProperties": _pattern_properties}
    return extend(base, {name: budget.counted(check) for name, check in keywords.items()})


class _Budget:
    """Counts keyword checks, and stops a validation that needs too many."""

    def __init__(self, checks: int) -> None:
        self._left = checks

    def counted(self, check: Keyword) -> Keyword:
        def counting(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise TooCostly(f"its schema needs more than {KEYWORD_CHECKS} checks")
            return check(validator, value, instance, schema) or ()

        return counting


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError("does not match the pattern")


def _pattern_properties(
    validator: Any, patterns: Any, instance: Any, _: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            if _matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)
