"""Formulas over arrays or objects as alternatives: each a set of places that must all hold.

Negations are pushed to the leaves and written as schemas again, so that an alternative holds
positive places only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

from model.constraints.arrays import read_items
from model.constraints.document import Document, Place
from model.constraints.formula import (
    And,
    Formula,
    Not,
    One,
    Or,
    Type,
    Unevaluated,
    Values,
)
from model.constraints.unevaluated import rest_of
from model.errors import UnsupportedSchema

MAX_TERMS = 600
_MAX_JOINT = 4

Term = frozenset[Place]


class Terms:
    """The alternatives of formulas for one container type.

    `are_disjoint` says whether two alternatives certainly share no value; it may say no too often.
    """

    def __init__(
        self, document: Document, type_: Type, are_disjoint: Callable[[Term, Term], bool]
    ) -> None:
        self.document, self.type = document, type_
        self._are_disjoint = are_disjoint
        self._known: dict[tuple[Formula, bool], tuple[Term, ...]] = {}

    def of(self, formula: Formula, *, positive: bool = True) -> tuple[Term, ...]:
        """The alternatives of the formula, or of its negation; none where it cannot hold."""
        key = (formula, positive)
        if key not in self._known:
            self._known[key] = self._simplify(self._of(formula, positive))
        return self._known[key]

    def _of(self, formula: Formula, positive: bool) -> Iterable[Term]:
        if isinstance(formula, Not):
            return self.of(formula.part, positive=not positive)
        if isinstance(formula, One):
            return self._one(formula) if positive else self._not_one(formula)
        if isinstance(formula, Unevaluated):
            return self._unevaluated(formula, positive)
        if isinstance(formula, And | Or):
            parts = [self.of(part, positive=positive) for part in formula.parts]
            if isinstance(formula, And) == positive:
                return self._all(parts)
            return [term for terms in parts for term in terms]
        assert not isinstance(formula, Values)
        if positive:
            return [frozenset({formula.place})]
        return [frozenset({place}) for place in negations(self.document, formula.place, self.type)]

    def _all(self, parts: list[tuple[Term, ...]]) -> list[Term]:
        found: list[Term] = [frozenset()]
        for terms in sorted(parts, key=len):
            found = self._simplify(left | right for left in found for right in terms)
        return found

    def _one(self, formula: One) -> list[Term]:
        parts = [self.of(part) for part in formula.parts]
        found: list[Term] = []
        for index, terms in enumerate(parts):
            others = [
                self._negated(formula, part)
                for other, part in enumerate(formula.parts)
                if other != index and self._may_overlap(terms, parts[other])
            ]
            found += self._all([terms, *others])
        return found

    def _unevaluated(self, formula: Unevaluated, positive: bool) -> Iterable[Term]:
        """Each alternative with the schema of what none of its places speaks of."""
        if not positive:
            raise formula.place.refuse(formula.keyword, f"the negation of {formula.keyword}")
        for term in self.of(_jointly(formula.part)):
            yield term | {rest_of(self.document, formula.place, formula.keyword, term)}

    def _negated(self, formula: One, part: Formula) -> tuple[Term, ...]:
        try:
            return self.of(part, positive=False)
        except UnsupportedSchema as error:
            raise formula.place.refuse(
                "oneOf",
                f"two branches may both hold, and one cannot be excluded: {error.reason}",
                "give the branches a property with different constants, or use anyOf",
            ) from None

    def _not_one(self, formula: One) -> list[Term]:
        none = self._all([self.of(part, positive=False) for part in formula.parts])
        parts = [self.of(part) for part in formula.parts]
        for index, left in enumerate(parts):
            for right in parts[index + 1 :]:
                none += self._all([left, right])
        return none

    def _may_overlap(self, left: tuple[Term, ...], right: tuple[Term, ...]) -> bool:
        return any(not self._are_disjoint(a, b) for a in left for b in right)

    def _simplify(self, terms: Iterable[Term]) -> Any:
        kept: dict[Term, None] = {}
        self.document.check_time()
        for term in terms:
            kept[term] = None
            if len(kept) > MAX_TERMS:
                raise UnsupportedSchema(
                    f"the {self.type.value}s have more than {MAX_TERMS} alternatives",
                    hint="use fewer combinations of anyOf and oneOf",
                )
        if frozenset() in kept:
            return (frozenset(),)
        return tuple(kept)


def _jointly(formula: Formula) -> Formula:
    """The same formula where branches that may hold together also stand side by side.

    It holds for the same values, but its alternatives tell which branches hold: all of them count
    for what is evaluated.
    """
    if isinstance(formula, And):
        return And(tuple(map(_jointly, formula.parts)))
    if not isinstance(formula, Or) or len(formula.parts) > _MAX_JOINT:
        return formula
    parts = [_jointly(part) for part in formula.parts]
    sizes = range(1, len(parts) + 1)
    return Or(tuple(And(chosen) for size in sizes for chosen in combinations(parts, size)))


def negations(document: Document, place: Place, type_: Type) -> list[Place]:
    """Places of which at least one holds exactly where the own keywords of `place` do not.

    Raises UnsupportedSchema for a keyword that cannot be negated.
    """
    build = _object_negations if type_ is Type.OBJECT else _array_negations
    return [
        document.synthetic(place, {"type": type_.value, **schema}, "negated", type_, index)
        for index, schema in enumerate(build(document, place))
    ]


def _object_negations(document: Document, place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in place.texts("required"):
        found.append({"properties": {name: False}})
    for name, value in place.mapping("properties").items():
        outside = document.negation(document.child(place, "properties", value, name))
        if outside is not document.false:
            found.append({"properties": {name: outside}, "required": [name]})
    for pattern, value in place.mapping("patternProperties").items():
        outside = document.negation(document.child(place, "patternProperties", value, pattern))
        if outside is not document.false:
            found.append({"$exists": ({"pattern": pattern}, outside)})
    if "additionalProperties" in place.keywords:
        value = place.keywords["additionalProperties"]
        outside = document.negation(document.child(place, "additionalProperties", value))
        if outside is not document.false:
            found.append({"$exists": (_other_names(place), outside)})
    if "propertyNames" in place.keywords:
        names = document.child(place, "propertyNames", place.keywords["propertyNames"])
        found.append({"$exists": (document.negation(names), document.true)})
    if (least := place.count("minProperties")) is not None and least > 0:
        found.append({"maxProperties": least - 1})
    if (most := place.count("maxProperties")) is not None:
        found.append({"minProperties": most + 1})
    for name, others in dependents(place).items():
        found += [{"required": [name], "properties": {other: False}} for other in others]
    if "$exists" in place.keywords:
        names, value = place.keywords["$exists"]
        raise place.refuse("not", "a twofold negation of property names")
    return found


def _other_names(place: Place) -> dict[str, Any]:
    """A schema of the names that additionalProperties speaks of."""
    patterns = [{"pattern": pattern} for pattern in place.mapping("patternProperties")]
    return {"not": {"anyOf": [{"enum": list(place.mapping("properties"))}, *patterns]}}


def dependents(place: Place) -> dict[str, list[str]]:
    """The names that must come once another has come, of both keywords for it."""
    found: dict[str, list[str]] = {}
    for keyword in ("dependentRequired", "dependencies"):
        for name, others in place.mapping(keyword).items():
            if isinstance(others, list):
                if not all(isinstance(other, str) for other in others):
                    raise place.refuse(keyword, f"{keyword} must list property names")
                found.setdefault(name, []).extend(others)
            elif keyword == "dependentRequired":
                raise place.refuse(keyword, "dependentRequired must hold lists of names")
    return found


def _array_negations(document: Document, place: Place) -> list[dict[str, Any]]:
    items = read_items(document, place)
    found: list[dict[str, Any]] = []
    for index, item in enumerate(items.prefix):
        outside = document.negation(item)
        if outside is not document.false:
            before = [document.true] * index
            found.append({"prefixItems": [*before, outside], "minItems": index + 1})
    outside = document.negation(items.rest)
    if outside is not document.false:
        if items.prefix:
            raise place.refuse("not", "a negation of items after a prefix")
        found.append({"contains": outside})
    if items.minimum > 0:
        found.append({"maxItems": items.minimum - 1})
    if items.maximum is not None:
        found.append({"minItems": items.maximum + 1})
    if items.is_unique:
        raise place.refuse("uniqueItems", "the negation of uniqueItems")
    for contained in items.contains:
        if contained.limits.minimum > 0:
            fewer = contained.limits.minimum - 1
            found.append({"contains": contained.place, "minContains": 0, "maxContains": fewer})
        if contained.limits.maximum is not None:
            more = contained.limits.maximum + 1
            found.append({"contains": contained.place, "minContains": more})
    return found
