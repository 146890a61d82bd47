"""A JSON schema document: its dialect, its places with their pointers, and its local references.

Nothing is fetched, ever. The document is walked once, iteratively, so that size and nesting are
bounded before anything recurses over it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

import referencing.exceptions
from jsonschema import validators
from jsonschema.protocols import Validator
from referencing import Registry, Resource, Specification
from referencing.jsonschema import specification_with

from model.errors import UnsupportedSchema

MAX_TEXT = 2_000_000
MAX_NESTING = 100
MAX_VALUES = 200_000
MAX_SECONDS = 4.0
MAX_COUNT = 10**12

Json = Any
_DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LISTED_ITEMS_DIALECT = "http://json-schema.org/draft-07/schema"


class Draft(IntEnum):
    """The drafts whose keywords differ; later ones compare greater."""

    D4 = 4
    D6 = 6
    D7 = 7
    D2019 = 2019
    D2020 = 2020


_DRAFTS = {
    "http://json-schema.org/draft-04/schema": Draft.D4,
    "http://json-schema.org/draft-06/schema": Draft.D6,
    "http://json-schema.org/draft-07/schema": Draft.D7,
    "https://json-schema.org/draft/2019-09/schema": Draft.D2019,
    _DEFAULT_DIALECT: Draft.D2020,
}


@dataclass(frozen=True, eq=False)
class Place:
    """One schema inside a document: a boolean or an object. Compared by identity."""

    value: Mapping[str, Json] | bool
    pointer: str
    draft: Draft
    resolver: Any = field(repr=False)
    is_synthetic: bool = False
    """Made up to express a part of another place."""

    @cached_property
    def keywords(self) -> Mapping[str, Json]:
        return self.value if isinstance(self.value, Mapping) else {}

    def refuse(self, keyword: str, reason: str, hint: str = "") -> UnsupportedSchema:
        """The error that names this place and a keyword of it."""
        return UnsupportedSchema(reason, pointer=self.pointer, keyword=keyword, hint=hint)

    def count(self, keyword: str) -> int | None:
        """A non-negative whole number, or None when the keyword is absent."""
        value: Any = self.keywords.get(keyword)
        if value is None and keyword not in self.keywords:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= MAX_COUNT or value != int(value):
            raise self.refuse(keyword, f"{keyword} must be a whole number from 0 to 10 ** 12")
        return int(value)

    def number(self, keyword: str) -> Fraction | None:
        """A number, exactly, or None when the keyword is absent."""
        if keyword not in self.keywords:
            return None
        value = self.keywords[keyword]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(keyword, f"{keyword} must be a number")
        return Fraction(str(value))

    def texts(self, keyword: str) -> list[str]:
        """A list of strings; empty when the keyword is absent."""
        value = self.keywords.get(keyword, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            hint = "list the required names beside `properties`" if keyword == "required" else ""
            raise self.refuse(keyword, f"{keyword} must be a list of strings", hint)
        return value

    def mapping(self, keyword: str) -> Mapping[str, Json]:
        """An object; empty when the keyword is absent."""
        value = self.keywords.get(keyword, {})
        if not isinstance(value, Mapping):
            raise self.refuse(keyword, f"{keyword} must be an object")
        return value


_ANNOTATIONS = frozenset(
    "title description default examples example deprecated readOnly writeOnly $comment $schema "
    "contentEncoding contentMediaType contentSchema discriminator xml externalDocs "
    "enumNames markdownDescription".split()
)


class Document:
    """The places of one schema. `place` finds or makes them; equal leaves share one."""

    def __init__(self, contents: Json) -> None:
        if not isinstance(contents, Mapping | bool):
            raise UnsupportedSchema("a schema must be an object or a boolean")
        self.contents = contents
        self._pointers = {id(value): (value, pointer) for value, pointer in _walk(contents)}
        self._deadline = time.monotonic() + MAX_SECONDS
        self.dialect, self.draft = _dialect(contents)
        self._places: dict[int, Place] = {}
        self._leaves: dict[str, Place] = {}
        self._synthetic: dict[tuple[Any, ...], Place] = {}
        self._kept: list[Json] = []
        specification: Specification[Json] = specification_with(self.dialect)
        self._resource: Resource[Json] = specification.create_resource(contents)
        self._resolver: Any = None
        self._specification = specification
        self.true = Place(True, "", self.draft, None)
        self.false = Place(False, "", self.draft, None)
        self._any = Place({}, "", self.draft, None)

    @classmethod
    def parse(cls, text: str) -> Document:
        """Reads a schema's JSON text; raises UnsupportedSchema when it is not a schema at all."""
        if len(text) > MAX_TEXT:
            raise UnsupportedSchema(f"the schema's text is longer than {MAX_TEXT} characters")
        try:
            contents = json.loads(text, parse_constant=_refuse_constant)
        except RecursionError:
            raise UnsupportedSchema(f"the schema nests deeper than {MAX_NESTING}") from None
        except ValueError as error:
            raise UnsupportedSchema(f"the schema is not JSON: {error}") from None
        return cls(contents)

    @property
    def root(self) -> Place:
        return self.place(self.contents, self.resolver, self.draft, "")

    @property
    def resolver(self) -> Any:
        if self._resolver is None:
            registry: Registry[Json] = Registry()
            self._resolver = registry.resolver_with_root(self._resource)
        return self._resolver

    def place(
        self, value: Json, resolver: Any, draft: Draft, pointer: str, keyword: str = ""
    ) -> Place:
        """The place of a subschema that `resolver`'s base holds."""
        if isinstance(value, bool):
            return self.true if value else self.false
        if not isinstance(value, Mapping):
            raise UnsupportedSchema(
                "a schema must be an object or a boolean", pointer=pointer, keyword=keyword
            )
        found = self._places.get(id(value))
        if found is None:
            found = self._make(value, resolver, draft, pointer)
            self._places[id(value)] = found
        return found

    def _make(self, value: Mapping[str, Json], resolver: Any, draft: Draft, pointer: str) -> Place:
        pointer = self._pointers.get(id(value), (value, pointer))[1]
        leaf = _leaf_key(value)
        if leaf == "{}":
            return self._any
        if leaf is not None and leaf in self._leaves:
            return self._leaves[leaf]
        is_reference = "$ref" in value and draft <= Draft.D7  # its siblings are not read
        if ("$id" in value or "id" in value) and not is_reference:
            resolver = resolver.in_subresource(self._specification.create_resource(value))
        made = Place(value, pointer, draft, resolver)
        if leaf is not None:
            self._leaves[leaf] = made
        return made

    def child(self, parent: Place, keyword: str, value: Json, *path: str) -> Place:
        """The place of the subschema `value`, found in `parent` under `keyword`."""
        self.check_time()
        if isinstance(value, Place):  # of a synthetic schema
            return value
        steps = "".join(f"/{_escape(step)}" for step in (keyword, *path))
        return self.place(value, parent.resolver, parent.draft, parent.pointer + steps, keyword)

    def synthetic(
        self, origin: Place, value: Mapping[str, Json], *key: Any, draft: Draft = Draft.D2020
    ) -> Place:
        """A schema made up to express part of `origin`; the same `key` gives the same place.

        Subschemas of `origin` inside `value` keep their places. Keywords are read as `draft`'s.
        """
        full = (id(origin), *key)
        found = self._synthetic.get(full)
        if found is None:
            self._kept.append(value)  # ids of kept values stay unique
            found = Place(value, origin.pointer, draft, origin.resolver, is_synthetic=True)
            self._synthetic[full] = found
        return found

    def check_time(self) -> None:
        """Raises UnsupportedSchema when compiling has taken too long."""
        if time.monotonic() > self._deadline:
            raise UnsupportedSchema(
                f"the schema needs more than {MAX_SECONDS:.0f} s to compile",
                hint="use fewer combinations of anyOf, oneOf and allOf, or simpler patterns",
            )

    def negation(self, of: Place) -> Place:
        """The place `{"not": of}`."""
        if isinstance(of.value, bool):
            return self.false if of.value else self.true
        return self.synthetic(of, {"not": of}, "not")

    def resolve(self, origin: Place, keyword: str) -> Place:
        """The place a reference of `origin` leads to, inside this document only."""
        reference = origin.keywords[keyword]
        if not isinstance(reference, str):
            raise origin.refuse(keyword, f"{keyword} must be a string")
        if keyword != "$ref" and self._anchors > 1:
            raise origin.refuse(
                keyword, f"{keyword} where several schemas may be meant", "use $ref"
            )
        try:
            resolved = origin.resolver.lookup(reference)
        except (referencing.exceptions.Unresolvable, ValueError, TypeError, LookupError):
            raise origin.refuse(
                keyword,
                f"the reference {reference[:200]!r} leads to nothing inside the schema",
                "references are never fetched; copy what it means into $defs",
            ) from None
        return self.place(
            resolved.contents, resolved.resolver, self.draft, reference.lstrip("#"), keyword
        )

    @property
    def names_its_draft(self) -> bool:
        """Whether `$schema` says how to read the document."""
        return isinstance(self.contents, Mapping) and "$schema" in self.contents

    @cached_property
    def has_unevaluated(self) -> bool:
        """Whether it matters somewhere which places evaluate which properties or items."""
        keywords = ("unevaluatedProperties", "unevaluatedItems")
        return any(k in value for value, _ in self._pointers.values() for k in keywords)

    @cached_property
    def _anchors(self) -> int:
        """How many places a dynamic or recursive reference could mean."""
        places = self._pointers.values()
        return sum("$dynamicAnchor" in value or "$recursiveAnchor" in value for value, _ in places)


def dialect_of(contents: Json) -> str:
    """The URI of the dialect a schema is judged by: its `$schema` where known, else 2020-12.

    Without `$schema`, `items` as a list makes it draft 7: later drafts have no such form.
    """
    return _dialect(contents)[0]


def validator_for(contents: Json) -> type[Validator]:
    """The jsonschema validator class that judges answers for a schema."""
    found: type[Validator] = validators.validator_for({"$schema": dialect_of(contents)})
    return found


def _dialect(contents: Json) -> tuple[str, Draft]:
    named = contents.get("$schema") if isinstance(contents, Mapping) else None
    uri = named.rstrip("#") if isinstance(named, str) else _DEFAULT_DIALECT
    if named is None and any(isinstance(value.get("items"), list) for value, _ in _walk(contents)):
        uri = _LISTED_ITEMS_DIALECT
    uri = uri if uri in _DRAFTS else _DEFAULT_DIALECT
    return uri, _DRAFTS[uri]


def _walk(contents: Json) -> Iterator[tuple[Mapping[str, Json], str]]:
    """Every object with its pointer; raises when there is too much of anything."""
    pending: list[tuple[Json, str, int]] = [(contents, "", 0)]
    seen = 0
    while pending:
        value, pointer, depth = pending.pop()
        seen += 1
        if seen > MAX_VALUES:
            raise UnsupportedSchema(f"the schema holds more than {MAX_VALUES} values")
        if depth > MAX_NESTING:
            raise UnsupportedSchema(f"the schema nests deeper than {MAX_NESTING}", pointer=pointer)
        if isinstance(value, Mapping):
            yield value, pointer
            pending += [(v, f"{pointer}/{_escape(k)}", depth + 1) for k, v in value.items()]
        elif isinstance(value, list):
            pending += [(v, f"{pointer}/{i}", depth + 1) for i, v in enumerate(value)]


def _leaf_key(value: Mapping[str, Json]) -> str | None:
    """A text equal for schemas that mean the same, for those without subschemas; else None."""
    constraining = {k: v for k, v in value.items() if k not in _ANNOTATIONS}
    for item in constraining.values():
        if isinstance(item, Mapping) or (
            isinstance(item, list) and any(isinstance(part, Mapping | list) for part in item)
        ):
            return None
    if "$ref" in constraining or "$id" in constraining or "id" in constraining:
        return None
    return json.dumps(constraining, sort_keys=True)


def _escape(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
