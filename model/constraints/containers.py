"""Threads before a value and inside arrays and objects: what may come next, and when to close."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from model.constraints.names import ROOT, NameNode
from model.constraints.shapes import (
    MAX_DEPTH,
    ArrayShape,
    ItemChoice,
    KeyClass,
    Node,
    ObjectShape,
    StringLang,
    bits,
)
from model.constraints.threads import (
    Content,
    Interner,
    Literal,
    Number,
    Plain,
    Slot,
    String,
    Thread,
    Threads,
    Tracked,
)

OPENED, AFTER_VALUE, AFTER_COMMA = range(3)
_COMMA, _COLON, _SPACE, _QUOTE = b',: "'
_NUMBER = b"-0123456789"
_BREAK = 1000  # a gap: blanks read so far, plus _BREAK once a line break was read


class Value(Thread):
    """Before a value of `node`."""

    __slots__ = ("node",)

    def __init__(self, make: Interner, node: Node, below: Thread) -> None:
        super().__init__(make, below, below.depth)
        self.node = node

    @property
    def is_avoiding(self) -> bool:
        """Whether the value must not be one of those that came before it."""
        return isinstance(self.below, Array) and self.below.shape.is_unique

    @property
    def first_bytes(self) -> Collection[int]:
        return self.node.first_bytes

    @property
    def other_bytes(self) -> Collection[int]:
        """The bytes that can begin a value, without those of numbers."""
        return self.node.first_bytes.translate(None, _NUMBER)

    def _step(self, byte: int) -> Threads:
        if byte == _QUOTE:
            return self._strings()
        if byte in _NUMBER:
            return self._numbers(byte)
        if byte in b"tfn":
            return self._literals(byte)
        return self._containers(byte)

    def _strings(self) -> Threads:
        contents = (self._content(lang, '"') for lang in self.node.strings)
        return tuple(self.make(String, content, ()) for content in contents if content)

    def _numbers(self, byte: int) -> Threads:
        contents = (self._content(lang, "") for lang in self.node.numbers)
        pushed = (content.push(byte) for content in contents if content)
        return tuple(self.make(Number, content) for content in pushed if content)

    def _literals(self, byte: int) -> Threads:
        found: Threads = ()
        for text in self.node.literals:
            if ord(text[0]) == byte:
                for below in self._after_literal(text):
                    found += self.make(Literal, text, below).step(byte)
        return found

    def _content(self, lang: StringLang, kind: str) -> Content | None:
        assert self.below is not None
        if not self.is_avoiding:
            return self.make(Plain, lang, 0, 0, self.below)
        assert isinstance(self.below, Array)
        slot = self.make(ItemSlot, self.below, kind)
        free = lang.count()
        taken = sum(lang.dfa.matches(text) for text in slot.avoid)
        if free is not None and free <= taken:
            return None
        return self.make(Tracked, lang, 0, 0, "", slot)

    def _after_literal(self, text: str) -> Threads:
        assert self.below is not None
        if not self.is_avoiding:
            return (self.below,)
        assert isinstance(self.below, Array)
        slot = self.make(ItemSlot, self.below, "")
        return () if text in slot.avoid else slot.resume(text)

    def _containers(self, byte: int) -> Threads:
        if byte == ord("{"):
            fitting = (s for s in self.node.objects if self._fits(s.height))
            return tuple(self.make(Object, s, 0, frozenset(), 0, 0, self.below) for s in fitting)
        if byte == ord("["):
            return tuple(
                self.make(Array, s, 0, (0,) * len(s.contains), frozenset(), 0, 0, self.below)
                for s in self.node.arrays
                if self._fits(s.height)
            )
        return ()

    def _fits(self, height: int | None) -> bool:
        return height is not None and self.depth + height <= MAX_DEPTH


class Container(Thread):
    """Inside an array or object, between its parts. `gap` is the whitespace just read."""

    __slots__ = ("gap", "phase")
    phase: int
    gap: int
    closing: int

    @property
    def can_close(self) -> bool:
        raise NotImplementedError

    @property
    def can_go_on(self) -> bool:
        raise NotImplementedError

    def begin_part(self, byte: int) -> Threads:
        """The threads after the first byte of the next key or item."""
        raise NotImplementedError

    def _moved(self, phase: int, gap: int) -> Thread:
        """This place in another phase."""
        raise NotImplementedError

    def _step(self, byte: int) -> Threads:
        if byte in b" \t\n":
            return self._widen(byte)
        if self.phase == AFTER_VALUE:
            if byte == _COMMA and not self.gap and self.can_go_on:
                return (self._moved(AFTER_COMMA, 0),)
            return self._close(byte)
        return self.begin_part(byte) + (self._close(byte) if self.phase == OPENED else ())

    def _close(self, byte: int) -> Threads:
        assert self.below is not None
        return (self.below,) if byte == self.closing and self.can_close else ()

    def _widen(self, byte: int) -> Threads:
        style = self.make.style
        if self.phase != AFTER_COMMA and not style.inner_gaps:
            return ()
        if self.phase == AFTER_VALUE and not self.can_close:
            return ()
        if byte == ord("\n"):
            is_first = style.breaks and self.gap == 0
            return (self._moved(self.phase, _BREAK),) if is_first else ()
        if self.gap % _BREAK >= style.spaces:
            return ()
        return (self._moved(self.phase, self.gap + 1),)


class Object(Container):
    """Inside an object: `used` is the set of listed names that came, `extras` the other names."""

    __slots__ = ("_open_names", "extras", "shape", "used")
    closing = ord("}")

    def __init__(
        self,
        make: Interner,
        shape: ObjectShape,
        used: int,
        extras: frozenset[str],
        phase: int,
        gap: int,
        below: Thread,
    ) -> None:
        super().__init__(make, below, below.depth + 1)
        self.shape, self.used, self.extras, self.phase, self.gap = shape, used, extras, phase, gap
        self._open_names: int | None = None

    def _moved(self, phase: int, gap: int) -> Thread:
        return self.make(Object, self.shape, self.used, self.extras, phase, gap, self.below)

    def with_name(self, index: int) -> Thread:
        used = self.used | 1 << index
        return self.make(Object, self.shape, used, self.extras, AFTER_VALUE, 0, self.below)

    def with_extra(self, name: str) -> Thread:
        extras = self.extras | {name}
        return self.make(Object, self.shape, self.used, extras, AFTER_VALUE, 0, self.below)

    @property
    def count(self) -> int:
        return self.used.bit_count() + len(self.extras)

    @property
    def can_close(self) -> bool:
        shape = self.shape
        return (
            self.count >= shape.minimum and not shape.owed(self.used) and not self._owed_classes()
        )

    @property
    def can_go_on(self) -> bool:
        return bool(self.open_names) or any(True for _ in self.open_classes())

    def _owed_classes(self) -> list[KeyClass]:
        if not self.shape.needs_a_class:
            return []
        return [
            key
            for key in self.shape.classes
            if key.is_needed and not any(key.lang.dfa.matches(name) for name in self.extras)
        ]

    @property
    def open_names(self) -> int:
        """The set of listed names that may come next, so that the object can still be completed."""
        if self._open_names is None:
            self._open_names = self._find_open_names()
        return self._open_names

    def _find_open_names(self) -> int:
        shape = self.shape
        names = shape.usable & ~self.used
        if shape.is_ordered:
            names = self._in_order(names)
        if (
            shape.maximum is None
            and not shape.is_ordered
            and self.depth + shape.tallest <= MAX_DEPTH
        ):
            return names
        return sum(bit for bit in bits(names) if self._leaves_room(bit))

    def _in_order(self, names: int) -> int:
        if self.extras:
            return 0
        owed = self.shape.owed(self.used)
        names &= -1 << self.used.bit_length()
        return names & ((owed & -owed) * 2 - 1) if owed else names

    def _leaves_room(self, bit: int) -> bool:
        """Whether all that must come fits behind the name `bit`."""
        shape = self.shape
        pulled = shape.pulls[bit.bit_length() - 1]
        if any(
            (shape.nodes[b.bit_length() - 1].height or 0) + self.depth > MAX_DEPTH
            for b in bits(pulled & ~self.used)
        ):
            return False
        owed = (shape.owed(self.used) | pulled) & ~self.used
        if shape.is_ordered:
            later = shape.usable & (-1 << bit.bit_length())
            if owed & (bit - 1) or (
                not shape.classes and self.count + 1 + later.bit_count() < shape.minimum
            ):
                return False
        room = None if shape.maximum is None else shape.maximum - self.count
        return room is None or owed.bit_count() + len(self._owed_classes()) <= room

    def open_classes(self) -> Iterable[int]:
        """The classes of other names that may come next."""
        shape = self.shape
        owed = shape.owed(self.used)
        if shape.is_ordered and owed:
            return
        owed_classes = self._owed_classes()
        for index, key in enumerate(shape.classes):
            if (key.node.height or 0) + self.depth > MAX_DEPTH:
                continue
            others = len(owed_classes) - (key in owed_classes)
            if shape.maximum is not None and (
                self.count + 1 + owed.bit_count() + others > shape.maximum
            ):
                continue
            free = key.lang.count()
            if free is None or free > len(self.taken(index)):
                yield index

    def taken(self, index: int) -> frozenset[str]:
        """The names that are not free for a class: listed ones and extras that came."""
        listed = self.shape.taken[index]
        if not self.extras:
            return listed
        lang = self.shape.classes[index].lang
        return listed.union(name for name in self.extras if lang.dfa.matches(name))

    def begin_part(self, byte: int) -> Threads:
        if byte != _QUOTE:
            return ()
        here = self._moved(AFTER_COMMA, 0)
        assert isinstance(here, Object)
        found: Threads = ()
        if self.open_names:
            found += (self.make(String, self.make(Named, here, ROOT), ()),)
        for index in self.open_classes():
            slot = self.make(KeySlot, here, index)
            content = self.make(Tracked, self.shape.classes[index].lang, 0, 0, "", slot)
            found += (self.make(String, content, ()),)
        return found

    @property
    def first_bytes(self) -> Collection[int]:
        return b' \t\n"}' if self.phase != AFTER_VALUE else b" \t\n,}"


class Named(Content):
    """A listed property name, read up to `node` of the trie of names."""

    __slots__ = ("node", "object")

    def __init__(self, make: Interner, object_: Object, node: NameNode) -> None:
        self.make, self.object, self.node, self.depth = make, object_, node, object_.depth

    def extend(self, text: str) -> Content | None:
        trie, node = self.object.shape.trie, self.node
        for character in text:
            child = trie.children(node).get(ord(character))
            if child is None:
                return None
            node = child
        return self.make(Named, self.object, node) if self._may_mean(node) else None

    def _may_mean(self, node: NameNode) -> bool:
        return bool(self.object.shape.trie.reach(node) & self.object.open_names)

    def allows(self, low: int, high: int) -> bool:
        reached = self.object.shape.trie.reach_between(self.node, low, high)
        return bool(reached & self.object.open_names)

    def finish(self) -> Threads:
        shape = self.object.shape
        index = shape.trie.index(self.node)
        if index < 0 or not self.object.open_names >> index & 1:
            return ()
        return (self.make(Colon, shape.nodes[index], 0, self.object.with_name(index)),)


class KeySlot(Slot):
    """A property name of a class of other names."""

    __slots__ = ("index", "object")

    def __init__(self, make: Interner, object_: Object, index: int) -> None:
        self.object, self.index, self.depth = object_, index, object_.depth
        self.avoid = object_.taken(index)

    @property
    def node(self) -> Node:
        """What the values of the class are."""
        return self.object.shape.classes[self.index].node

    def resume(self, text: str) -> Threads:
        return (self.object.make(Colon, self.node, 0, self.object.with_extra(text)),)


class Colon(Thread):
    """Between a key and its value: 0 before the colon, 1 after it, 2 after its space."""

    __slots__ = ("node", "phase")

    def __init__(self, make: Interner, node: Node, phase: int, below: Thread) -> None:
        super().__init__(make, below, below.depth)
        self.node, self.phase = node, phase

    def _step(self, byte: int) -> Threads:
        if self.phase == 0:
            is_colon = byte == _COLON
            return (self.make(Colon, self.node, 1, self.below),) if is_colon else ()
        if byte == _SPACE and self.spaced:
            return (self.spaced,)
        return self.value.step(byte)

    @property
    def spaced(self) -> Colon | None:
        """The thread after the space that may stand before the value."""
        may_be = self.phase == 1 and self.make.style.colon_space
        return self.make(Colon, self.node, 2, self.below) if may_be else None

    @property
    def value(self) -> Value:
        return self.make(Value, self.node, self.below)

    @property
    def first_bytes(self) -> Collection[int]:
        if self.phase == 0:
            return b":"
        return self.node.first_bytes + (b" " if self.phase == 1 else b"")


class Array(Container):
    """Inside an array whose next item is `index`. `seen` holds the items when they are unique.

    `counts` are the items so far that count for each contains, up to where more cannot matter.
    """

    __slots__ = ("_openings", "_values", "counts", "index", "seen", "shape")
    closing = ord("]")

    def __init__(
        self,
        make: Interner,
        shape: ArrayShape,
        index: int,
        counts: tuple[int, ...],
        seen: frozenset[str],
        phase: int,
        gap: int,
        below: Thread,
    ) -> None:
        super().__init__(make, below, below.depth + 1)
        self.shape, self.index, self.counts, self.seen = shape, index, counts, seen
        self.phase, self.gap = phase, gap
        self._openings: tuple[tuple[ItemChoice, tuple[int, ...]], ...] | None = None
        self._values: tuple[Value, ...] | None = None

    def forget(self) -> None:
        super().forget()
        self._values = None  # they are below it, and it below them

    def _at(
        self, index: int, counts: tuple[int, ...], seen: frozenset[str], phase: int, gap: int
    ) -> Array:
        return self.make(Array, self.shape, index, counts, seen, phase, gap, self.below)

    def _moved(self, phase: int, gap: int) -> Thread:
        return self._at(self.index, self.counts, self.seen, phase, gap)

    def with_seen(self, item: str) -> Thread:
        return self._at(self.index, self.counts, self.seen | {item}, self.phase, self.gap)

    @property
    def can_close(self) -> bool:
        return self.index >= self.shape.minimum and all(
            count >= limits.minimum
            for count, limits in zip(self.counts, self.shape.contains, strict=True)
        )

    @property
    def can_go_on(self) -> bool:
        return bool(self.openings)

    @property
    def openings(self) -> tuple[tuple[ItemChoice, tuple[int, ...]], ...]:
        """The ways to read the next item after which the array can still be completed."""
        if self._openings is None:
            counted = (
                (choice, self._count(choice))
                for choice in self.shape.choices(self.index)
                if (choice.node.height or 0) + self.depth <= MAX_DEPTH
            )
            self._openings = tuple(
                (choice, counts)
                for choice, counts in counted
                if self._can_complete(self.shape.next_index(self.index), counts)
                and self._has_fresh_item(choice)
            )
        return self._openings

    def _count(self, choice: ItemChoice) -> tuple[int, ...]:
        return tuple(
            min(count + (index in choice.counts), (limits.maximum or limits.minimum) + 1)
            for index, (count, limits) in enumerate(
                zip(self.counts, self.shape.contains, strict=True)
            )
        )

    def _can_complete(self, index: int, counts: tuple[int, ...]) -> bool:
        to_come = max(self.shape.minimum - index, 0)
        missing = 0
        for contains, (count, limits) in enumerate(zip(counts, self.shape.contains, strict=True)):
            missing += max(limits.minimum - count, 0)
            fits = self.shape.capacity(index, contains, counted=True)
            if fits is not None and missing > fits:
                return False
            if limits.maximum is not None:
                others = self.shape.capacity(index, contains, counted=False)
                forced = 0 if others is None else max(to_come - others, 0)
                if count + forced > limits.maximum:
                    return False
        return True

    def _has_fresh_item(self, choice: ItemChoice) -> bool:
        if not self.shape.is_unique:
            return True
        values = choice.node.scalar_count
        to_come = max(self.shape.minimum - self.index, 1)
        return values is None or values - len(self.seen) >= to_come

    @property
    def values(self) -> tuple[Value, ...]:
        """The threads before the next item."""
        if self._values is None:
            index = self.shape.next_index(self.index)
            self._values = tuple(
                self.make(Value, choice.node, self._at(index, counts, self.seen, AFTER_VALUE, 0))
                for choice, counts in self.openings
            )
        return self._values

    def begin_part(self, byte: int) -> Threads:
        return tuple(dict.fromkeys(after for value in self.values for after in value.step(byte)))

    @property
    def first_bytes(self) -> Collection[int]:
        if self.phase == AFTER_VALUE:
            return b" \t\n,]"
        return {*b" \t\n]", *(b for choice, _ in self.openings for b in choice.node.first_bytes)}


class ItemSlot(Slot):
    """An item of an array of unique scalars; `kind` is `"` for strings, else empty."""

    __slots__ = ("array", "kind")

    def __init__(self, make: Interner, array: Array, kind: str) -> None:
        self.array, self.kind, self.depth = array, kind, array.depth
        self.avoid = frozenset(
            item[len(kind) :] for item in array.seen if item.startswith('"') == bool(kind)
        )

    def resume(self, text: str) -> Threads:
        return (self.array.with_seen(self.kind + text),)
