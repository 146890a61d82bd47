"""Object keywords of places that must all hold, as ObjectShapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from model.constraints import dfa
from model.constraints.dfa import Dfa
from model.constraints.document import Document, Place
from model.constraints.scalars import StringAlgebra, Strings, pattern_texts, string_langs
from model.constraints.shapes import KeyClass, Node, ObjectShape, StringLang, folded
from model.constraints.terms import dependents

Conj = frozenset[Place]
MakeNode = Callable[[Conj], Node]
NamesOf = Callable[[Place], Strings]

MAX_CLASSES = 64


@dataclass(frozen=True)
class KeyMap:
    """Which schema the value of a property must satisfy, as one place says it."""

    named: Mapping[str, Place]
    patterns: tuple[tuple[Dfa, Dfa, Place], ...]
    """Names certainly matching, names possibly matching, and the schema."""
    additional: Place

    def values(self, name: str) -> Iterable[Place]:
        """All that may apply to the value of `name`."""
        found = [place for _, wide, place in self.patterns if wide.matches(name)]
        is_covered = any(inside.matches(name) for inside, _, _ in self.patterns)
        if name in self.named:
            return [self.named[name], *found]
        return found if is_covered else [*found, self.additional]


@dataclass(frozen=True)
class Others:
    """Names that are not listed: a language of them, and what their values must satisfy."""

    lang: StringLang
    value: Conj
    is_needed: bool = False


@dataclass(frozen=True)
class _Form:
    """An ObjectShape with places instead of nodes."""

    names: tuple[str, ...]
    values: Mapping[str, Conj]
    others: tuple[Others, ...]
    required: frozenset[str]


def object_shapes(
    document: Document,
    places: Iterable[Place],
    make_node: MakeNode,
    names_of: NamesOf,
    *,
    force_order: bool,
    extra_properties: bool,
) -> list[ObjectShape]:
    """Shapes that together are the objects satisfying all of the places."""
    ordered = sorted(places, key=lambda place: place.pointer)
    maps = [key_map(document, place) for place in ordered]
    allowed = _allowed_names(document, ordered, names_of)
    pulls = _pulls(ordered)
    required = [name for place in ordered for name in place.texts("required")]
    names = _listed(maps, required, pulls)
    values = {
        name: frozenset(v for m in maps for v in m.values(name))
        | (frozenset() if _is_allowed(allowed, name) else frozenset({document.false}))
        for name in names
    }
    least = max((place.count("minProperties") or 0 for place in ordered), default=0)
    if extra_properties or least > len(names) or not _lists_its_keys(ordered):
        others = tuple(_others(document, ordered, maps, allowed))
    else:
        others = ()
    drafts = [_Form(tuple(names), values, others, frozenset(required))]
    for place in ordered:
        if "$exists" in place.keywords:
            drafts = [d for draft in drafts for d in _existing(document, draft, place, names_of)]
    maxima = [m for place in ordered if (m := place.count("maxProperties")) is not None]
    return [
        _shape(draft, pulls, make_node, least, min(maxima, default=None), force_order)
        for draft in drafts
    ]


_SPEAKS_OF_OTHERS = frozenset(
    "additionalProperties patternProperties propertyNames unevaluatedProperties $exists".split()
)


def _lists_its_keys(places: Iterable[Place]) -> bool:
    """Whether the places list properties and say nothing about other keys."""
    spoken_of = {keyword for place in places for keyword in place.keywords}
    return "properties" in spoken_of and spoken_of.isdisjoint(_SPEAKS_OF_OTHERS)


def key_map(document: Document, place: Place) -> KeyMap:
    named = {
        name: document.child(place, "properties", value, name)
        for name, value in place.mapping("properties").items()
    }
    patterns = tuple(
        (
            pattern_texts(place, "patternProperties", pattern, inside=True),
            pattern_texts(place, "patternProperties", pattern, inside=False),
            document.child(place, "patternProperties", value, pattern),
        )
        for pattern, value in place.mapping("patternProperties").items()
    )
    rest = place.keywords.get("additionalProperties", True)
    return KeyMap(named, patterns, document.child(place, "additionalProperties", rest))


def _allowed_names(document: Document, places: list[Place], names_of: NamesOf) -> Strings:
    algebra = StringAlgebra()
    allowed = algebra.everything
    for place in places:
        if "propertyNames" in place.keywords:
            names = document.child(place, "propertyNames", place.keywords["propertyNames"])
            allowed = algebra.meet(allowed, names_of(names))
    return allowed


def _is_allowed(allowed: Strings, name: str) -> bool:
    met = StringAlgebra().meet(allowed, Strings(frozenset({name}), ()))
    return bool(met.words)


def _pulls(places: list[Place]) -> dict[str, set[str]]:
    pulls: dict[str, set[str]] = {}
    for place in places:
        for name, others in dependents(place).items():
            pulls.setdefault(name, set()).update(others)
    return pulls


def _listed(
    maps: list[KeyMap], required: Iterable[str], pulls: Mapping[str, set[str]]
) -> list[str]:
    """Every name that is spoken of, in the order of the schema."""
    named = (name for key_map in maps for name in key_map.named)
    pulled = (name for first, others in pulls.items() for name in (first, *sorted(others)))
    return list(dict.fromkeys((*named, *required, *pulled)))


def _others(
    document: Document, places: list[Place], maps: list[KeyMap], allowed: Strings
) -> Iterable[Others]:
    """The names that are not listed, split by the schemas that apply to their values."""
    everything = StringAlgebra.everything
    parts: list[tuple[Strings, Conj]] = [(everything, frozenset())]
    for place, key_map in zip(places, maps, strict=True):
        parts = _split(document, parts, key_map)
        if len(parts) > MAX_CLASSES:
            raise place.refuse("patternProperties", f"more than {MAX_CLASSES} kinds of names")
    algebra = StringAlgebra()
    for names, value in parts:
        met = names if allowed is everything else algebra.meet(names, allowed)
        for lang in string_langs(met):
            small = folded(lang)
            if not small.is_empty:
                yield Others(small, value)


def _split(
    document: Document, parts: list[tuple[Strings, Conj]], key_map: KeyMap
) -> list[tuple[Strings, Conj]]:
    """Each part cut by which patterns of the map match; the rest gets its additional schema."""
    algebra = StringAlgebra()
    found: list[tuple[Strings, Conj]] = []
    for names, value in parts:
        pieces: list[tuple[Strings, Conj, bool]] = [(names, value, False)]
        for inside, wide, place in key_map.patterns:
            within = Strings(frozenset(), (StringLang(inside),) if not inside.is_empty else ())
            beyond = dfa.complement(wide)
            without = Strings(frozenset(), (StringLang(beyond),) if not beyond.is_empty else ())
            pieces = [
                piece
                for some, conj, is_matched in pieces
                for piece in (
                    (algebra.meet(some, within), conj | {place}, True),
                    (algebra.meet(some, without), conj, is_matched),
                )
                if piece[0].langs or piece[0].words
            ]
        for some, conj, is_matched in pieces:
            full = conj if is_matched else conj | {key_map.additional}
            if document.false not in full:
                found.append((some, full - {document.true}))
    return found


def _existing(document: Document, draft: _Form, place: Place, names_of: NamesOf) -> Iterable[_Form]:
    """The ways in which some property with a name and a value as `$exists` says can be there."""
    schema, value = place.keywords["$exists"]
    if not isinstance(schema, Place):
        schema = document.synthetic(place, schema, "names", str(schema))
    names = names_of(schema)
    for name in draft.names:
        if _is_allowed(names, name):
            values = {**draft.values, name: draft.values[name] | {value}}
            yield replace(draft, values=values, required=draft.required | {name})
    for index, other in enumerate(draft.others):
        inside = StringAlgebra().meet(names, Strings(frozenset(), (other.lang,)))
        outside = StringAlgebra().meet(
            StringAlgebra().complement(names), Strings(frozenset(), (other.lang,))
        )
        for position, lang in enumerate(inside_langs := string_langs(inside)):
            kept = [replace(other, lang=folded(part)) for part in string_langs(outside)]
            kept += [
                replace(other, lang=folded(part))
                for at, part in enumerate(inside_langs)
                if at != position
            ]
            needed = Others(folded(lang), other.value | {value}, is_needed=True)
            yield replace(
                draft, others=(*draft.others[:index], *draft.others[index + 1 :], *kept, needed)
            )


def _shape(
    draft: _Form,
    pulls: Mapping[str, set[str]],
    make_node: MakeNode,
    least: int,
    most: int | None,
    force_order: bool,
) -> ObjectShape:
    bit = {name: 1 << index for index, name in enumerate(draft.names)}
    required = _closure(draft.required, pulls)
    return ObjectShape(
        names=draft.names,
        nodes=tuple(make_node(draft.values[name]) for name in draft.names),
        classes=tuple(
            KeyClass(other.lang, make_node(other.value), other.is_needed) for other in draft.others
        ),
        required=sum(bit[name] for name in required),
        pulls=tuple(sum(bit[other] for other in _closure({name}, pulls)) for name in draft.names),
        minimum=least,
        maximum=most,
        is_ordered=force_order,
    )


def _closure(start: Iterable[str], pulls: Mapping[str, set[str]]) -> set[str]:
    """`start` and everything that it pulls, directly or not."""
    found = set(start)
    pending = list(found)
    while pending:
        for name in pulls.get(pending.pop(), ()):
            if name not in found:
                found.add(name)
                pending.append(name)
    return found
