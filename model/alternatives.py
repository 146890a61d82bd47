"""The probability of each alternative of a choice or an enum.

Each alternative is decoded by itself, under a constraint that allows nothing else: the log
probabilities that the model gives its tokens, end of answer included, add up to the alternative's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from model.completion import Completion
from model.constraints.spec import ConstraintSpec
from model.errors import RowError
from model.rows import RequestRow

MAX_ALTERNATIVES = 64
_NEUTRAL = {
    "temperature": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_tokens": 0,
    "ignore_eos": False,
    "stop": (),
    "n": 1,
    "logprobs": 0,
    "enable_thinking": False,
    "choice_probabilities": False,
}


def alternatives(row: RequestRow) -> dict[str, RequestRow]:
    """By its text, each alternative of the row as a row that can only answer that.

    A JSON schema has alternatives when it is an enum, or an object of one property that is one.
    Raises RowError when the constraint has none, or too many.
    """
    found = dict(_narrowed(row.constraint)) if row.constraint else {}
    if not 1 <= len(found) <= MAX_ALTERNATIVES:
        raise RowError(
            f"choice_probabilities needs a choice or an enum of 1 to {MAX_ALTERNATIVES} "
            f"alternatives, got {len(found)}",
            "INVALID_PARAMETER_VALUE",
        )
    fields = row.fields.model_copy(update=_NEUTRAL)
    return {
        text: replace(row, fields=fields, constraint=constraint)
        for text, constraint in found.items()
    }


def log_probability(completion: Completion) -> float | None:
    """Of a whole answer's tokens; None for a cut one."""
    choice = completion.choices[0]
    if choice.finish_reason != "stop" or choice.logprobs is None:
        return None
    ranked = zip(choice.token_ids, choice.logprobs, strict=False)
    return float(sum(logprobs[token].logprob for token, logprobs in ranked))


def shares(log_probabilities: Mapping[str, float]) -> dict[str, float]:
    """The probabilities of alternatives of which one is the answer: they add up to 1."""
    top = max(log_probabilities.values())
    weights = {text: math.exp(value - top) for text, value in log_probabilities.items()}
    total = sum(weights.values())
    return {text: weight / total for text, weight in weights.items()}


def _narrowed(constraint: ConstraintSpec) -> Iterator[tuple[str, ConstraintSpec]]:
    if constraint.kind == "choice":
        for text in json.loads(constraint.text):
            yield text, replace(constraint, text=json.dumps([text]))
    elif constraint.kind == "json":
        for value, json_schema in _narrowed_schemas(json.loads(constraint.text)):
            text = value if isinstance(value, str) else json.dumps(value)
            yield text, replace(constraint, text=json.dumps(json_schema))


def _narrowed_schemas(json_schema: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each value of the schema's enum, and the schema that allows only it."""
    if not isinstance(json_schema, dict):
        return
    if isinstance(json_schema.get("enum"), list):
        for value in json_schema["enum"]:
            yield value, {**json_schema, "enum": [value]}
        return
    properties = json_schema.get("properties")
    if isinstance(properties, dict) and len(properties) == 1:
        ((name, inner),) = properties.items()
        for value, narrowed in _narrowed_schemas(inner):
            yield value, {**json_schema, "properties": {name: narrowed}}
