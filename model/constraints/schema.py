"""Compiles a JSON schema to the nodes that a parser walks, or says why it cannot be enforced.

The compiled nodes accept exactly the answers that are valid for the schema, within the documented
bounds on depth, whitespace and number texts; or UnsupportedSchema names the place and keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from model.constraints.arrays import array_shape, read_items
from model.constraints.dfa import TooComplex
from model.constraints.document import Document, Place
from model.constraints.formula import FALSE, Formula, Formulas, Type, all_of
from model.constraints.linking import link
from model.constraints.objects import key_map, object_shapes
from model.constraints.scalars import (
    BooleanAlgebra,
    Evaluator,
    NullAlgebra,
    NumberAlgebra,
    StringAlgebra,
    Strings,
    number_langs,
    string_langs,
)
from model.constraints.shapes import Node
from model.constraints.terms import Term, Terms
from model.errors import UnsupportedSchema

MAX_NODES = 20_000
_LOOK_AHEAD = 3  # levels searched for a contradiction between branches of a oneOf

Conj = frozenset[Place]


def compile_schema(text: str, *, force_order: bool = False, extra_properties: bool = True) -> Node:
    """The root node of a schema given as JSON text. Raises UnsupportedSchema.

    Without `extra_properties` an object has only keys that its schema speaks of.
    """
    document = Document.parse(text)
    try:
        compiler = Compiler(document, force_order=force_order, extra_properties=extra_properties)
        return compiler.compile()
    except TooComplex as error:
        raise UnsupportedSchema(f"too complex: {error}", hint="simplify the schema") from None


class Compiler:
    """Makes one node for each set of places that must hold together."""

    def __init__(
        self, document: Document, *, force_order: bool, extra_properties: bool = True
    ) -> None:
        self.document, self.force_order = document, force_order
        self.extra_properties = extra_properties
        self.formulas = Formulas(document)
        self.nulls = Evaluator(NullAlgebra())
        self.booleans = Evaluator(BooleanAlgebra())
        self.numbers = Evaluator(NumberAlgebra())
        self.strings = Evaluator(StringAlgebra())
        self.terms = {
            Type.ARRAY: Terms(document, Type.ARRAY, self._are_disjoint_arrays),
            Type.OBJECT: Terms(document, Type.OBJECT, self._are_disjoint_objects),
        }
        self._nodes: dict[tuple[Conj, bool], Node] = {}
        self._pending: list[tuple[Conj, bool, Node]] = []
        self._looks = 0  # looks ahead in progress, one inside the other

    def compile(self) -> Node:
        """The root node, with everything impossible taken out."""
        root = self.node(frozenset({self.document.root}))
        try:
            while self._pending:
                self._check_bounds()
                conj, is_unique, node = self._pending.pop()
                self._fill(node, conj, is_unique=is_unique)
        finally:
            self.terms.clear()  # they refer to the compiler, which is to go at once
        link(root, self._nodes.values())
        return root

    def node(self, conj: Conj) -> Node:
        """The node of values for which all places hold."""
        return self._node(conj, is_unique=False)

    def unique_node(self, conj: Conj) -> Node:
        """The same for items that must differ: each number has one text, containers are refused."""
        return self._node(conj, is_unique=True)

    def _node(self, conj: Conj, *, is_unique: bool) -> Node:
        conj = conj - {self.document.true} if len(conj) > 1 else conj
        found = self._nodes.get((conj, is_unique))
        if found is None:
            pointer = min((place.pointer for place in conj), default="")
            found = self._nodes[conj, is_unique] = Node(pointer)
            self._pending.append((conj, is_unique, found))
        return found

    def _check_bounds(self) -> None:
        if len(self._nodes) > MAX_NODES:
            raise UnsupportedSchema(f"the schema needs more than {MAX_NODES} nodes")
        self.document.check_time()

    def _fill(self, node: Node, conj: Conj, *, is_unique: bool) -> None:
        if self.document.false in conj:
            return
        node.literals = tuple(self._literals(conj))
        numbers = self.numbers.evaluate(self._formula(conj, Type.NUMBER))
        node.numbers = number_langs(numbers, canonical=is_unique)
        node.strings = string_langs(self.strings.evaluate(self._formula(conj, Type.STRING)))
        arrays = self._terms(conj, Type.ARRAY)
        objects = self._terms(conj, Type.OBJECT)
        if is_unique and (arrays or objects):
            raise UnsupportedSchema(
                "uniqueItems over items that may be arrays or objects",
                pointer=node.pointer,
                keyword="uniqueItems",
                hint="give the items a scalar type, or drop uniqueItems",
            )
        node.arrays = tuple(
            array_shape(self.document, term, self.node, self.unique_node) for term in arrays
        )
        node.objects = tuple(
            shape
            for term in objects
            for shape in object_shapes(
                self.document,
                term,
                self.node,
                self._names,
                force_order=self.force_order,
                extra_properties=self.extra_properties,
            )
        )

    def _literals(self, conj: Conj) -> Iterable[str]:
        if self.nulls.evaluate(self._formula(conj, Type.NULL)):
            yield "null"
        allowed = self.booleans.evaluate(self._formula(conj, Type.BOOLEAN))
        yield from (text for text, value in (("true", True), ("false", False)) if value in allowed)

    def _formula(self, conj: Conj, type_: Type) -> Formula:
        return all_of(self.formulas.of(place, type_) for place in conj)

    def _terms(self, conj: Conj, type_: Type) -> tuple[Term, ...]:
        return self.terms[type_].of(self._formula(conj, type_))

    def _names(self, place: Place) -> Strings:
        """The property names that a schema for names allows, from inside."""
        return self.strings.evaluate(self.formulas.of(place, Type.STRING))

    def _are_disjoint_objects(self, left: Term, right: Term) -> bool:
        return self._look_ahead(self._has_no_object, left | right)

    def _are_disjoint_arrays(self, left: Term, right: Term) -> bool:
        return self._look_ahead(self._has_no_array, left | right)

    def _look_ahead(self, has_none: Callable[[Term, int], bool], term: Term) -> bool:
        """Looks for a contradiction; where a look leads to another oneOf, not without end."""
        self._looks += 1
        try:
            return has_none(term, _LOOK_AHEAD)
        finally:
            self._looks -= 1

    def _has_no_object(self, term: Term, levels: int) -> bool:
        """Whether certainly no object satisfies all places: a required value is impossible."""
        required = {name for place in term for name in place.texts("required")}
        if not required:
            return False
        maps = [key_map(self.document, place) for place in term]
        return any(
            self._is_empty(frozenset(v for m in maps for v in m.values(name)), levels - 1)
            for name in required
        )

    def _has_no_array(self, term: Term, levels: int) -> bool:
        parts = [read_items(self.document, place) for place in term]
        least = max((part.minimum for part in parts), default=0)
        if any(part.maximum is not None and part.maximum < least for part in parts):
            return True
        return any(
            self._is_empty(
                frozenset(p.prefix[i] if i < len(p.prefix) else p.rest for p in parts), levels - 1
            )
            for i in range(min(least, 1 + max((len(p.prefix) for p in parts), default=0)))
        )

    def _is_empty(self, conj: Conj, levels: int) -> bool:
        """Whether certainly no value satisfies all places; may say no too often."""
        if self.document.false in conj:
            return True
        if any(self._literals(conj)):
            return False
        numbers = self.numbers.evaluate(self._formula(conj, Type.NUMBER), inside=False)
        strings = self.strings.evaluate(self._formula(conj, Type.STRING), inside=False)
        if numbers.values or numbers.ranges or strings.words or strings.langs:
            return False
        for type_, has_none in (
            (Type.OBJECT, self._has_no_object),
            (Type.ARRAY, self._has_no_array),
        ):
            formula = self._formula(conj, type_)
            if formula == FALSE:
                continue
            is_far = levels <= 0 or self._looks > _LOOK_AHEAD
            if is_far or not all(has_none(t, levels) for t in self.terms[type_].of(formula)):
                return False
        return True
