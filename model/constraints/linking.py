"""Finds which nodes can be completed, how deep, and takes out everything that cannot.

A least fixpoint in rounds: in round n exactly the nodes whose flattest value nests n containers
become possible. What is still impossible after MAX_DEPTH rounds has no value within the bound.
"""

from __future__ import annotations

from collections.abc import Collection

from model.constraints.shapes import MAX_DEPTH, ArrayShape, ItemChoice, KeyClass, Node, ObjectShape
from model.errors import UnsupportedSchema


def link(root: Node, nodes: Collection[Node]) -> None:
    """Sets every height and prunes; raises UnsupportedSchema when the root has no value."""
    _find_heights(nodes)
    if root.height is None:
        raise UnsupportedSchema(
            "no value can satisfy the schema",
            pointer=_find_contradiction(root).pointer,
            hint="the keywords there contradict each other",
        )
    for node in nodes:
        node.arrays = tuple(shape for shape in node.arrays if shape.height is not None)
        node.objects = tuple(shape for shape in node.objects if shape.height is not None)
        for array in node.arrays:
            _prune_array(array)
        for object_ in node.objects:
            _prune_object(object_)


def _find_heights(nodes: Collection[Node]) -> None:
    for node in nodes:
        if node.literals or node.numbers or node.strings:
            node.height = 0
    waiting = [node for node in nodes if node.arrays or node.objects]
    for height in range(1, MAX_DEPTH + 1):
        shapes = [
            shape
            for node in waiting
            for shape in _shapes(node)
            if shape.height is None and _is_possible(shape)
        ]
        if not shapes:
            return
        for shape in shapes:
            shape.height = height
        for node in waiting:
            if node.height is None and any(shape.height is not None for shape in _shapes(node)):
                node.height = height


def _shapes(node: Node) -> list[ArrayShape | ObjectShape]:
    return [*node.arrays, *node.objects]


def _is_possible(shape: ArrayShape | ObjectShape) -> bool:
    """Whether the shape has a value made of nodes known to be possible."""
    return _has_array(shape) if isinstance(shape, ArrayShape) else _has_object(shape)


def _has_object(shape: ObjectShape) -> bool:
    if shape.maximum is not None and shape.maximum < shape.minimum:
        return False
    usable = _usable(shape)
    if shape.required & ~usable:
        return False
    classes = [key for key in shape.classes if key.node.height is not None]
    needed = sum(key.is_needed for key in shape.classes)
    if needed > sum(key.is_needed for key in classes):
        return False
    if shape.maximum is not None and shape.required.bit_count() + needed > shape.maximum:
        return False
    pool = usable.bit_count()
    for key in classes:
        count = key.lang.count()
        if count is None:
            return True
        pool += max(count - len(shape.taken[shape.classes.index(key)]), 0)
    return pool >= shape.minimum


def _usable(shape: ObjectShape) -> int:
    """The names whose value is possible, and of all that they pull."""
    possible = sum(1 << i for i, node in enumerate(shape.nodes) if node.height is not None)
    return sum(1 << index for index, pulled in enumerate(shape.pulls) if not pulled & ~possible)


def _has_array(shape: ArrayShape) -> bool:
    if shape.maximum is not None and shape.maximum < shape.minimum:
        return False
    pruned = _pruned(shape)
    if pruned.maximum is not None and pruned.maximum < shape.minimum:
        return False
    for index, limits in enumerate(shape.contains):
        fits = pruned.capacity(0, index, counted=True)
        if fits is not None and fits < limits.minimum:
            return False
        others = pruned.capacity(0, index, counted=False)
        forced = 0 if others is None else max(shape.minimum - others, 0)
        if limits.maximum is not None and max(forced, limits.minimum) > limits.maximum:
            return False
    if not shape.is_unique or shape.minimum < 2:
        return True
    counts = [choice.node.scalar_count for choice in pruned.rest]
    return any(count is None or count >= shape.minimum for count in counts)


def _pruned(shape: ArrayShape) -> ArrayShape:
    """The shape with possible choices only, and no item after one without a choice."""

    def possible(choices: tuple[ItemChoice, ...]) -> tuple[ItemChoice, ...]:
        return tuple(choice for choice in choices if choice.node.height is not None)

    prefix = tuple(map(possible, shape.prefix))
    rest = possible(shape.rest)
    maximum = shape.maximum
    end = next((index for index, choices in enumerate(prefix) if not choices), None)
    if end is None and not rest:
        end = len(prefix)
    if end is not None and (maximum is None or end < maximum):
        maximum = end
    return ArrayShape(
        prefix, rest, shape.minimum, maximum, shape.is_unique, shape.contains, shape.height
    )


def _prune_array(shape: ArrayShape) -> None:
    pruned = _pruned(shape)
    shape.prefix, shape.rest, shape.maximum = pruned.prefix, pruned.rest, pruned.maximum


def _prune_object(shape: ObjectShape) -> None:
    shape.usable = _usable(shape)
    if not all(key.node.height is not None for key in shape.classes):
        classes: list[KeyClass] = [key for key in shape.classes if key.node.height is not None]
        shape.classes = tuple(classes)
        shape.__dict__.pop("taken", None)  # was computed for the classes before


def _find_contradiction(node: Node) -> Node:
    """The deepest place on the way of required values where nothing is possible."""
    seen: set[int] = set()
    while id(node) not in seen:
        seen.add(id(node))
        children = [
            shape.nodes[index]
            for shape in node.objects
            for index in range(len(shape.names))
            if shape.required >> index & 1
        ]
        children += [c.node for shape in node.arrays if shape.minimum for c in shape.rest]
        node = next((child for child in children if child.height is None), node)
    return node
