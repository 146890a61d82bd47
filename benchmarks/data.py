"""Reads the files of schemas with judged instances that the benchmarks take."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STRING_OR_SEPARATOR = re.compile(r'"(?:[^"\\]|\\.)*"|[,:]', re.DOTALL)


@dataclass(frozen=True)
class Instance:
    """A text, and whether it is an answer the schema allows."""

    text: str
    valid: bool


@dataclass(frozen=True)
class Case:
    """A schema and its judged instances."""

    name: str
    split: str
    schema: Any
    instances: tuple[Instance, ...]


def read_cases(path: Path) -> list[Case]:
    """The cases of a .jsonl or .jsonl.gz file; raises ValueError naming the line that is wrong."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    cases = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                cases.append(_case(json.loads(line), number))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a case: {error!r}") from error
    return cases


def _case(record: dict[str, Any], number: int) -> Case:
    """Of a record with `instances`, or with one `text` and `valid` of its own."""
    found = record.get("instances", [record])
    return Case(
        name=str(record.get("id") or record.get("name") or number),
        split=str(record.get("split") or "all"),
        schema=record["schema"],
        instances=tuple(Instance(each["text"], each["valid"]) for each in found),
    )


def spaced(text: str) -> str:
    """The same JSON text with a space after every `,` and `:` outside strings."""
    return _STRING_OR_SEPARATOR.sub(
        lambda found: found[0] if found[0][0] == '"' else found[0] + " ", text
    )


def spellings(instance: Instance) -> Iterator[str]:
    """The instance's text as it is and with spaces, if that is another text."""
    yield instance.text
    with_spaces = spaced(instance.text)
    if with_spaces != instance.text:
        yield with_spaces


def keywords(schema: Any) -> set[str]:
    """Every key that occurs in a schema where a keyword may stand (near enough for a table)."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            found |= node.keys()
            for key, value in node.items():
                named = key in _NAMED and isinstance(value, dict)
                waiting += value.values() if named else [] if key in _LITERAL else [value]
    return found & CONSTRAINING


_NAMED = {"properties", "patternProperties", "definitions", "$defs", "dependentSchemas"}
_LITERAL = {"enum", "const", "default", "examples"}
_KEYWORDS = """
type enum const properties required additionalProperties patternProperties propertyNames
minProperties maxProperties dependentRequired dependentSchemas dependencies items prefixItems
additionalItems minItems maxItems contains minContains maxContains uniqueItems minLength
maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf anyOf
allOf oneOf not if then else $ref $dynamicRef $recursiveRef nullable unevaluatedProperties
unevaluatedItems contentEncoding contentMediaType contentSchema
"""
CONSTRAINING = frozenset(_KEYWORDS.split())  # keywords of all drafts that may forbid an answer
