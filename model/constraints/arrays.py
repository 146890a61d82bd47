"""Array keywords of places that must all hold, as one ArrayShape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from model.constraints.document import Document, Draft, Place
from model.constraints.shapes import ArrayShape, Contains, ItemChoice, Node

Conj = frozenset[Place]
MakeNode = Callable[[Conj], Node]

_MAX_PREFIX = 2_000


@dataclass(frozen=True)
class Contained:
    """Items that match `place` are counted."""

    place: Place
    limits: Contains


@dataclass(frozen=True)
class Items:
    """The array keywords of one place, in one form for all drafts."""

    prefix: tuple[Place, ...]
    rest: Place
    minimum: int
    maximum: int | None
    is_unique: bool
    contains: tuple[Contained, ...]


def read_items(document: Document, place: Place) -> Items:
    """Reads the keywords as the place's draft has them."""
    prefix, rest = _prefix_and_rest(document, place)
    unique = place.keywords.get("uniqueItems", False)
    if not isinstance(unique, bool):
        raise place.refuse("uniqueItems", "uniqueItems must be true or false")
    return Items(
        prefix,
        rest,
        place.count("minItems") or 0,
        place.count("maxItems"),
        unique,
        tuple(_contained(document, place)),
    )


def _prefix_and_rest(document: Document, place: Place) -> tuple[tuple[Place, ...], Place]:
    keywords = place.keywords
    listed, other = "prefixItems", "items"
    if isinstance(keywords.get("items"), list):
        if place.draft >= Draft.D2020:
            raise place.refuse(
                "items", "items must be a schema", "list the first items in prefixItems"
            )
        listed, other = "items", "additionalItems"
    elif place.draft < Draft.D2020:
        listed = ""
    firsts = keywords.get(listed, [])
    if not isinstance(firsts, list) or len(firsts) > _MAX_PREFIX:
        raise place.refuse(listed, f"{listed} must be a list of at most {_MAX_PREFIX} schemas")
    prefix = tuple(
        document.child(place, listed, value, str(index)) for index, value in enumerate(firsts)
    )
    rest = document.child(place, other, keywords[other]) if other in keywords else document.true
    return prefix, rest


def _contained(document: Document, place: Place) -> Iterable[Contained]:
    if "contains" not in place.keywords or place.draft < Draft.D6:
        return
    minimum, maximum = 1, None
    if place.draft >= Draft.D2019:
        given = place.count("minContains")
        minimum = 1 if given is None else given
        maximum = place.count("maxContains")
    if minimum > 0 or maximum is not None:
        matched = document.child(place, "contains", place.keywords["contains"])
        yield Contained(matched, Contains(minimum, maximum))


def array_shape(
    document: Document,
    places: Iterable[Place],
    make_node: MakeNode,
    make_unique_node: MakeNode,
) -> ArrayShape:
    """The arrays that satisfy all of the places."""
    ordered = sorted(places, key=lambda place: place.pointer)
    parts = [read_items(document, place) for place in ordered]
    maxima = [part.maximum for part in parts if part.maximum is not None]
    maximum = min(maxima, default=None)
    is_unique = any(part.is_unique for part in parts) and maximum not in (0, 1)
    contains = tuple(c for part in parts for c in part.contains)
    depth = max((len(part.prefix) for part in parts), default=0)
    if is_unique and (depth or contains):
        place = next(p for p, part in zip(ordered, parts, strict=True) if part.is_unique)
        raise place.refuse("uniqueItems", "uniqueItems beside listed items or contains")
    make = make_unique_node if is_unique else make_node

    def choices(index: int) -> tuple[ItemChoice, ...]:
        item = frozenset(
            part.prefix[index] if index < len(part.prefix) else part.rest for part in parts
        )
        return tuple(_choices(document, item, contains, make))

    return ArrayShape(
        tuple(choices(index) for index in range(depth)),
        choices(depth),
        max((part.minimum for part in parts), default=0),
        maximum,
        is_unique,
        tuple(c.limits for c in contains),
    )


def _choices(
    document: Document, item: Conj, contains: tuple[Contained, ...], make: MakeNode
) -> Iterable[ItemChoice]:
    """Per item every combination of contains that it may count for."""
    for counted in product((True, False), repeat=len(contains)):
        places = set(item)
        for matched, contained in zip(counted, contains, strict=True):
            if matched:
                places.add(contained.place)
            elif contained.limits.maximum is not None:  # else an uncounted match does no harm
                places.add(document.negation(contained.place))
        counts = frozenset(index for index, matched in enumerate(counted) if matched)
        yield ItemChoice(make(frozenset(places)), counts)
