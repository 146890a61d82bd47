"""A ConstraintSpec becomes a compiled constraint, or an error that says where and why it cannot."""

from __future__ import annotations

import json
from collections import OrderedDict
from threading import Lock

from model.constraints import dfa
from model.constraints.dfa import TooComplex
from model.constraints.regex import UnsupportedPattern, compile_pattern
from model.constraints.schema import compile_schema
from model.constraints.shapes import STYLES, Constraint, StringLang
from model.constraints.spec import ConstraintSpec
from model.errors import FormlineError, UnsupportedSchema

MAX_CHOICES = 20_000
_KEPT = 64

_lock = Lock()
_kept: OrderedDict[ConstraintSpec, Constraint | UnsupportedSchema] = OrderedDict()


def compile_constraint(spec: ConstraintSpec) -> Constraint:
    """Compiles a spec of backend "formline"; raises UnsupportedSchema. The last ones are kept."""
    with _lock:
        found = _kept.get(spec)
        if found is not None:
            _kept.move_to_end(spec)
    if found is None:
        try:
            found = _compile(spec)
        except UnsupportedSchema as error:
            found = error
        with _lock:
            _kept[spec] = found
            while len(_kept) > _KEPT:
                _kept.popitem(last=False)
    if isinstance(found, FormlineError):
        raise found.with_traceback(None)
    return found


def _compile(spec: ConstraintSpec) -> Constraint:
    style = STYLES[spec.whitespace]
    if spec.kind == "regex":
        return Constraint(_regex(spec.text), style)
    if spec.kind == "choice":
        return Constraint(_choices(spec.text), style)
    text = '{"type": "object"}' if spec.kind == "json_object" else spec.text
    root = compile_schema(
        text, force_order=spec.force_order, extra_properties=spec.extra_properties
    )
    return Constraint(root, style)


def _regex(pattern: str) -> StringLang:
    try:
        texts = compile_pattern(pattern, anchored=True)
    except UnsupportedPattern as error:
        raise UnsupportedSchema(f"the regex cannot be enforced: {error}", keyword="regex") from None
    except TooComplex as error:
        raise UnsupportedSchema(f"the regex is too complex: {error}", keyword="regex") from None
    if texts.is_empty:
        raise UnsupportedSchema("no text can match the regex", keyword="regex")
    return StringLang(texts)


def _choices(text: str) -> StringLang:
    choices = json.loads(text)
    if not isinstance(choices, list) or not all(isinstance(c, str) and c for c in choices):
        raise UnsupportedSchema("choice must be a list of texts, none empty", keyword="choice")
    if not 0 < len(choices) <= MAX_CHOICES:
        raise UnsupportedSchema(f"choice must have 1 to {MAX_CHOICES} texts", keyword="choice")
    texts = dfa.literals(choices)
    if texts.is_empty:
        raise UnsupportedSchema("no choice is valid Unicode text", keyword="choice")
    return StringLang(texts)
