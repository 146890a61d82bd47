"""What a schema asks of one JSON type, as a boolean formula over places of the document.

All of JSON Schema's in-place applicators ($ref, allOf, anyOf, oneOf, not, if, dependentSchemas)
become connectives; what is left at the leaves are a place's own keywords for the type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from model.constraints.document import Document, Draft, Json, Place


class Type(Enum):
    """The JSON types; an integer is a number with a keyword of its own."""

    NULL = "null"
    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"

    __hash__ = object.__hash__  # Enum's own is written in Python, and types are keys everywhere


@dataclass(frozen=True)
class Own:
    """The place's own keywords for the type."""

    place: Place


@dataclass(frozen=True)
class Values:
    """The scalar values of the type that the place's `enum` or `const` lists."""

    place: Place
    keyword: str


@dataclass(frozen=True)
class Not:
    part: Formula


@dataclass(frozen=True)
class And:
    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class One:
    """Exactly one of the parts holds. `place` has the oneOf."""

    parts: tuple[Formula, ...]
    place: Place


@dataclass(frozen=True)
class Unevaluated:
    """`part` holds, and what none of its places speaks of is as the place's keyword says."""

    part: Formula
    place: Place
    keyword: str


Formula = Own | Values | Not | And | Or | One | Unevaluated
TRUE, FALSE = And(()), Or(())

OWN_KEYWORDS: Mapping[Type, frozenset[str]] = {
    Type.NULL: frozenset(),
    Type.BOOLEAN: frozenset(),
    Type.NUMBER: frozenset(
        "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split(),
    ),
    Type.STRING: frozenset("minLength maxLength pattern format".split()),
    Type.ARRAY: frozenset(
        "items prefixItems additionalItems minItems maxItems uniqueItems contains minContains "
        "maxContains unevaluatedItems".split()
    ),
    Type.OBJECT: frozenset(
        "properties patternProperties additionalProperties required propertyNames minProperties "
        "maxProperties dependentRequired dependencies unevaluatedProperties $exists".split()
    ),
}

_REFERENCES = {"$ref": Draft.D4, "$recursiveRef": Draft.D2019, "$dynamicRef": Draft.D2020}
_UNEVALUATED = {Type.ARRAY: "unevaluatedItems", Type.OBJECT: "unevaluatedProperties"}

_MAX_STEPS = 60  # in-place applicators and references that may follow each other


def all_of(parts: Iterable[Formula]) -> Formula:
    """The conjunction, with what is certain left out."""
    kept = tuple(dict.fromkeys(part for part in parts if part != TRUE))
    if FALSE in kept:
        return FALSE
    return kept[0] if len(kept) == 1 else And(kept)


def any_of(parts: Iterable[Formula]) -> Formula:
    """The disjunction, with what is impossible left out."""
    kept = tuple(dict.fromkeys(part for part in parts if part != FALSE))
    if TRUE in kept:
        return TRUE
    return kept[0] if len(kept) == 1 else Or(kept)


def negate(part: Formula) -> Formula:
    """The negation."""
    if part in (TRUE, FALSE):
        return FALSE if part == TRUE else TRUE
    return part.part if isinstance(part, Not) else Not(part)


def one_of(parts: Iterable[Formula], place: Place) -> Formula:
    """Exactly one; branches impossible for the type do not count."""
    kept = tuple(part for part in parts if part != FALSE)
    return kept[0] if len(kept) == 1 else (One(kept, place) if kept else FALSE)


class Formulas:
    """The formulas of a document's places, each built once."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._built: dict[tuple[Place, Type], Formula] = {}
        self._open: dict[tuple[Place, Type], None] = {}
        self._types: dict[Place, frozenset[str]] = {}

    def of(self, place: Place, type_: Type) -> Formula:
        """What `place` asks of values of the type."""
        if isinstance(place.value, bool):
            return TRUE if place.value else FALSE
        key = (place, type_)
        found = self._built.get(key)
        if found is not None:
            return found
        if self._excludes(place, type_):
            return FALSE
        if key in self._open:
            raise place.refuse(
                "$ref", "the schema refers to itself with no array or object in between"
            )
        if len(self._open) > _MAX_STEPS:
            raise place.refuse("", f"more than {_MAX_STEPS} references and applicators in a row")
        self._open[key] = None
        try:
            found = all_of(self._parts(place, type_))
            keyword = _UNEVALUATED.get(type_, "")
            if keyword in place.keywords and place.draft >= Draft.D2019 and found != FALSE:
                found = Unevaluated(found, place, keyword)
        finally:
            del self._open[key]
        self._built[key] = found
        return found

    def _excludes(self, place: Place, type_: Type) -> bool:
        """Whether the place's `type` rules the type out, whatever else it says."""
        names = place.keywords.get("type")
        if names is None or "$ref" in place.keywords:
            return False
        if place not in self._types:
            self._types[place] = frozenset(_types(place))
        known = self._types[place]
        return type_.value not in known and not (type_ is Type.NUMBER and "integer" in known)

    def _parts(self, place: Place, type_: Type) -> Iterable[Formula]:
        keywords = place.keywords
        if "$ref" in keywords and "$id" in keywords and not self.document.names_its_draft:
            raise place.refuse(
                "$id", "an $id beside a $ref, which drafts read differently", "name one in $schema"
            )
        for keyword, since in _REFERENCES.items():
            if keyword in keywords and place.draft >= since:
                yield self.of(self.document.resolve(place, keyword), type_)
        if "$ref" in keywords and place.draft <= Draft.D7:  # what stands beside it is not read
            return
        yield self._of_type(place, type_)
        if "enum" in keywords:
            yield self._of_values(place, "enum", keywords["enum"], type_)
        if "const" in keywords and place.draft > Draft.D4:
            yield self._of_values(place, "const", [keywords["const"]], type_)
        if not OWN_KEYWORDS[type_].isdisjoint(keywords):
            yield Own(place)
        yield from self._applicators(place, type_)

    def _of_type(self, place: Place, type_: Type) -> Formula:
        """What `type` asks beyond what `_excludes` knows: that a number be an integer."""
        if place not in self._types:  # there is no `type`
            return TRUE
        if type_ is Type.NUMBER and "number" not in self._types[place]:
            return Own(self.document.synthetic(place, {"$integer": place.draft}, "integer"))
        return TRUE

    def _of_values(self, place: Place, keyword: str, values: Json, type_: Type) -> Formula:
        if not isinstance(values, list):
            raise place.refuse(keyword, f"{keyword} must be a list")
        fitting = [value for value in values if type_of(value) is type_]
        if not fitting:
            return FALSE
        if type_ not in (Type.ARRAY, Type.OBJECT):
            return Values(place, keyword)
        return any_of(
            self.of(self._literal(place, value, keyword, type_, index), type_)
            for index, value in enumerate(fitting)
        )

    def _literal(self, place: Place, value: Json, *key: Any) -> Place:
        """A schema that exactly one array or object satisfies."""
        if type_of(value) not in (Type.ARRAY, Type.OBJECT):
            return self.document.synthetic(place, {"const": value}, "const", *key)
        if isinstance(value, list):
            items = [self._literal(place, item, *key, i) for i, item in enumerate(value)]
            schema = {"prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        else:
            named = {name: self._literal(place, v, *key, name) for name, v in value.items()}
            schema = {
                "properties": named,
                "required": list(named),
                "additionalProperties": False,
            }
        kind = "array" if isinstance(value, list) else "object"
        return self.document.synthetic(place, {"type": kind, **schema}, "const", *key)

    def _applicators(self, place: Place, type_: Type) -> Iterable[Formula]:
        keywords = place.keywords
        if "allOf" in keywords:
            yield all_of(self._branches(place, "allOf", type_))
        if "anyOf" in keywords:
            yield any_of(self._branches(place, "anyOf", type_))
        if "oneOf" in keywords:
            yield one_of(self._branches(place, "oneOf", type_), place)
        if "not" in keywords:
            yield negate(self._silenced(self._child(place, "not", type_)))
        if "if" in keywords and place.draft >= Draft.D7:
            yield self._conditional(place, type_)
        if type_ is Type.OBJECT:
            yield from self._dependent(place)

    def _branches(self, place: Place, keyword: str, type_: Type) -> list[Formula]:
        values = place.keywords[keyword]
        if not isinstance(values, list) or not values:
            raise place.refuse(keyword, f"{keyword} must be a list of schemas, and not empty")
        return [
            self.of(self.document.child(place, keyword, value, str(index)), type_)
            for index, value in enumerate(values)
        ]

    def _child(self, place: Place, keyword: str, type_: Type) -> Formula:
        return self.of(self.document.child(place, keyword, place.keywords[keyword]), type_)

    def _conditional(self, place: Place, type_: Type) -> Formula:
        """`then` where `if` holds, `else` where it does not; both sides say which it was."""
        condition = self._child(place, "if", type_)
        then = self._child(place, "then", type_) if "then" in place.keywords else TRUE
        other = self._child(place, "else", type_) if "else" in place.keywords else TRUE
        if then == other == TRUE and not self.document.has_unevaluated:
            return TRUE
        return Or((all_of((condition, then)), all_of((negate(self._silenced(condition)), other))))

    def _dependent(self, place: Place) -> Iterable[Formula]:
        for keyword in ("dependentSchemas", "dependencies"):
            for name, value in place.mapping(keyword).items():
                if isinstance(value, list):
                    continue  # names that must come too: an own keyword
                asked = self.of(self.document.child(place, keyword, value, name), Type.OBJECT)
                present = Own(self.document.synthetic(place, {"required": [name]}, "has", name))
                yield any_of((negate(present), all_of((present, asked))))

    def _silenced(self, formula: Formula) -> Formula:
        """The same formula, whose places evaluate nothing for unevaluatedProperties or -Items."""
        if not self.document.has_unevaluated:
            return formula
        if isinstance(formula, Own):
            place = formula.place
            return Own(self.document.synthetic(place, place.keywords, "silent", draft=place.draft))
        if isinstance(formula, Not):
            return Not(self._silenced(formula.part))
        if isinstance(formula, And | Or | One):
            return replace(formula, parts=tuple(map(self._silenced, formula.parts)))
        return formula


def type_of(value: Json) -> Type:
    """The JSON type of a parsed value."""
    if value is None:
        return Type.NULL
    if isinstance(value, bool):
        return Type.BOOLEAN
    if isinstance(value, int | float):
        return Type.NUMBER
    if isinstance(value, str):
        return Type.STRING
    return Type.ARRAY if isinstance(value, list) else Type.OBJECT


def _types(place: Place) -> list[str]:
    value = place.keywords["type"]
    names = [value] if isinstance(value, str) else value
    known = {"integer", *(type_.value for type_ in Type)}
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(name, str) and name in known for name in names)
    ):
        raise place.refuse(
            "type", f"unknown type {value!r:.100}", f"use {', '.join(sorted(known))}"
        )
    return names
