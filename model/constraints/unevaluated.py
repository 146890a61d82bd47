"""unevaluatedProperties and unevaluatedItems, as plain schemas for one alternative.

Which places hold is known in an alternative, and with them all that they evaluate; what is left
must satisfy the keyword. A branch that holds without being asked for may evaluate more: then less
is allowed than could be, never more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from model.constraints.arrays import read_items
from model.constraints.document import Document, Draft, Place


def rest_of(document: Document, place: Place, keyword: str, term: frozenset[Place]) -> Place:
    """The schema that `place`'s keyword comes to where the places of `term` hold."""
    holding = sorted(
        (other for other in term if not other.is_synthetic), key=lambda other: other.pointer
    )
    value = document.child(place, keyword, place.keywords[keyword])
    others = [other for other in holding if other is not place]
    if any(keyword in other.keywords for other in others):
        return document.true  # that one has evaluated everything
    build = _properties if keyword == "unevaluatedProperties" else _items
    schema = build(document, holding, value)
    return document.synthetic(place, schema, keyword, *map(id, holding))


def _properties(document: Document, holding: Iterable[Place], value: Place) -> dict[str, Any]:
    names: dict[str, bool] = {}
    patterns: dict[str, bool] = {}
    for place in holding:
        names |= dict.fromkeys(place.mapping("properties"), True)
        patterns |= dict.fromkeys(place.mapping("patternProperties"), True)
        if "additionalProperties" in place.keywords:
            value = document.true
    return {"properties": names, "patternProperties": patterns, "additionalProperties": value}


def _items(document: Document, holding: Iterable[Place], value: Place) -> dict[str, Any]:
    prefix, matched, is_open = 0, [value], True
    for place in holding:
        items = read_items(document, place)
        prefix = max(prefix, len(items.prefix))
        has_list = isinstance(place.keywords.get("items"), list)
        is_open = is_open and ("additionalItems" if has_list else "items") not in place.keywords
        if place.draft >= Draft.D2020 and "contains" in place.keywords:
            matched.append(document.child(place, "contains", place.keywords["contains"]))
    key = ("matched", *map(id, matched))
    rest = document.synthetic(value, {"anyOf": matched}, *key) if is_open else document.true
    return {"prefixItems": [True] * prefix, "items": rest}
