"""The states of a parse: immutable threads that read an answer byte by byte.

A thread is the one way to read the bytes so far; where a union leaves several ways open there are
several threads, and equal ones are one object, so that ways which meet again count once. A thread
holds what it is inside of as `below`, the thread that goes on when its own value is complete.

Invariant: every thread can be completed. `step` returns no thread that cannot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from model.constraints.partials import (
    ASTRAL,
    BYTES,
    ESCAPE,
    HEX_DIGITS,
    LOW_BACKSLASH,
    LOW_DIGITS,
    LOW_U,
    Partial,
)
from model.constraints.shapes import Constraint, StringLang, Style

T = TypeVar("T")
Threads = tuple["Thread", ...]


class Interner:
    """Makes each thread and content once, so that equal ones are identical.

    The threads of a constraint keep it alive, as `constraint`: its nodes go with it.
    """

    def __init__(self, style: Style, constraint: Constraint | None = None) -> None:
        self.style, self.constraint = style, constraint
        self._made: dict[tuple[Any, ...], Any] = {}

    def __call__(self, kind: type[T], *fields: Any) -> T:
        key = (kind, *fields)
        found: T | None = self._made.get(key)
        if found is None:
            made = kind(self, *fields)  # type: ignore[call-arg]
            found = self._made.setdefault(key, made)
        return found

    def __len__(self) -> int:
        return len(self._made)

    def clear(self) -> None:
        """Forgets what was made. Threads still held stay right; equal ones may be made anew."""
        made = list(self._made.values())
        self._made.clear()
        for each in made:
            if isinstance(each, Thread):
                each.forget()


class Thread:
    """One way to read the bytes so far. `depth` counts the containers around it."""

    __slots__ = ("_steps", "below", "depth", "make")
    can_end = False

    def __init__(self, make: Interner, below: Thread | None, depth: int) -> None:
        self.make, self.below, self.depth = make, below, depth
        self._steps: dict[int, Threads] = {}

    def step(self, byte: int) -> Threads:
        """The threads after one more byte; none where it is not allowed."""
        found = self._steps.get(byte)
        if found is None:
            found = self._steps[byte] = self._step(byte)
        return found

    def forget(self) -> None:
        """Forgets the threads that it leads to."""
        self._steps.clear()

    def _step(self, byte: int) -> Threads:
        raise NotImplementedError

    @property
    def first_bytes(self) -> Collection[int]:
        """The bytes that may be allowed; `step` has the last word."""
        raise NotImplementedError


class Done(Thread):
    """The answer is complete."""

    __slots__ = ()
    can_end = True

    def __init__(self, make: Interner) -> None:
        super().__init__(make, None, 0)

    def _step(self, byte: int) -> Threads:
        return ()

    @property
    def first_bytes(self) -> Collection[int]:
        return ()


class Hole(Thread):
    """Stands for whatever is around a value, where the value is read on its own."""

    __slots__ = ()

    def __init__(self, make: Interner, depth: int) -> None:
        super().__init__(make, None, depth)

    def _step(self, byte: int) -> Threads:
        raise AssertionError("what is around the value is not known here")

    @property
    def first_bytes(self) -> Collection[int]:
        return ()


class Content:
    """The characters of a string, number or text that is being read, and what follows it."""

    __slots__ = ("depth", "make")
    depth: int

    def push(self, code_point: int) -> Content | None:
        """The content with one more character, or None where it could not be completed."""
        return self.extend(chr(code_point))

    def extend(self, text: str) -> Content | None:
        """The content with more characters, or None where it could not be completed."""
        raise NotImplementedError

    def allows(self, low: int, high: int) -> bool:
        """Whether `push` takes some character from `low` to `high`."""
        raise NotImplementedError

    def finish(self) -> Threads:
        """The threads that go on when the content ends here; none where it must not."""
        raise NotImplementedError


class Plain(Content):
    """Content of which only the place in its language matters."""

    __slots__ = ("below", "lang", "length", "state")

    def __init__(
        self, make: Interner, lang: StringLang, state: int, length: int, below: Thread
    ) -> None:
        self.make, self.lang, self.state, self.length, self.below = make, lang, state, length, below
        self.depth = below.depth

    def extend(self, text: str) -> Content | None:
        place = self.lang.read(self.state, self.length, text)
        return None if place is None else self.make(Plain, self.lang, *place, self.below)

    def allows(self, low: int, high: int) -> bool:
        return self.lang.allows(self.state, self.length, low, high)

    def finish(self) -> Threads:
        return (self.below,) if self.lang.accepts(self.state, self.length) else ()


class Slot:
    """A place that takes a text not among those it took before: `avoid`, all of the language."""

    __slots__ = ("avoid", "depth")
    avoid: frozenset[str]
    depth: int

    def resume(self, text: str) -> Threads:
        """The threads that go on once the place is filled with `text`."""
        raise NotImplementedError


class Tracked(Content):
    """Content whose text must differ from those its slot avoids."""

    __slots__ = ("_rests", "lang", "length", "slot", "state", "text")

    def __init__(
        self, make: Interner, lang: StringLang, state: int, length: int, text: str, slot: Slot
    ) -> None:
        self.make, self.lang, self.state, self.length = make, lang, state, length
        self.text, self.slot, self.depth = text, slot, slot.depth
        self._rests: frozenset[str] | None = None

    @property
    def rests(self) -> frozenset[str]:
        """What would complete each text that the content must not become."""
        if self._rests is None:
            self._rests = _after(self.text, self.slot.avoid) if self.text else self.slot.avoid
        return self._rests

    @property
    def is_wide(self) -> bool:
        """Whether what must be avoided always can: nothing must, or the language is endless."""
        return self.lang.dfa.counts[self.state] is None or not self.rests

    def extend(self, text: str) -> Content | None:
        place = self.lang.read(self.state, self.length, text)
        if place is None:
            return None
        text = self.text + text
        free = self.lang.dfa.counts[place[0]]
        if free is not None and free <= sum(taken.startswith(text) for taken in self.slot.avoid):
            return None
        longer = self.make(Tracked, self.lang, *place, text, self.slot)
        longer.narrow(self)
        return longer

    def narrow(self, shorter: Tracked) -> None:
        """Takes over what the content that it goes on from knows of texts to avoid."""
        if self._rests is None and shorter._rests is not None:
            self._rests = shorter._rests and _after(self.text[len(shorter.text) :], shorter._rests)

    def allows(self, low: int, high: int) -> bool:
        if self.lang.dfa.counts[self.state] is None:
            return self.lang.allows(self.state, self.length, low, high)
        return any(
            self.push(code_point) is not None
            for lo, hi, _ in self.lang.dfa.edges[self.state]
            for code_point in range(max(lo, low), min(hi, high) + 1)
        )

    def finish(self) -> Threads:
        if self.text in self.slot.avoid or not self.lang.accepts(self.state, self.length):
            return ()
        return self.slot.resume(self.text)


def _after(prefix: str, texts: frozenset[str]) -> frozenset[str]:
    """What comes after the prefix in those texts that begin with it."""
    read = len(prefix)
    return frozenset(text[read:] for text in texts if text.startswith(prefix))


class Literal(Thread):
    """A word such as `true`, of which `text` is still to come."""

    __slots__ = ("text",)

    def __init__(self, make: Interner, text: str, below: Thread) -> None:
        super().__init__(make, below, below.depth)
        self.text = text

    def _step(self, byte: int) -> Threads:
        if byte != ord(self.text[0]):
            return ()
        if len(self.text) == 1:
            return (self.below,) if self.below else ()
        return (self.make(Literal, self.text[1:], self.below),)

    @property
    def first_bytes(self) -> Collection[int]:
        return (ord(self.text[0]),)


class Number(Thread):
    """Inside a number. It ends where the next byte belongs to what is below."""

    __slots__ = ("content",)

    def __init__(self, make: Interner, content: Content) -> None:
        super().__init__(make, None, content.depth)
        self.content = content

    def _step(self, byte: int) -> Threads:
        return self.grow(byte) + tuple(
            after for thread in self.content.finish() for after in thread.step(byte)
        )

    def grow(self, byte: int) -> Threads:
        """The threads after one more byte of the number."""
        longer = self.content.push(byte)
        return () if longer is None else (self.make(Number, longer),)

    @property
    def can_end(self) -> bool:  # type: ignore[override]
        return any(thread.can_end for thread in self.content.finish())

    @property
    def first_bytes(self) -> Collection[int]:
        following = (byte for thread in self.content.finish() for byte in thread.first_bytes)
        return {*b"0123456789.eE+-", *following}


_SHORT_ESCAPES = {
    ord(letter): ord(character)
    for letter, character in zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True)
}
_HEX = {ord(digit): int(digit, 16) for digit in "0123456789abcdefABCDEF"}
_QUOTE, _BACKSLASH = ord('"'), ord("\\")

_AFTER: Mapping[int, Collection[int]] = {
    BYTES: range(0x80, 0xC0),
    ESCAPE: frozenset((*_SHORT_ESCAPES, ord("u"))),
    HEX_DIGITS: frozenset(_HEX),
    LOW_BACKSLASH: b"\\",
    LOW_U: b"u",
    LOW_DIGITS: frozenset(_HEX),
}


class Text(Thread):
    """Inside plain UTF-8 text, between characters or within the bytes of one."""

    __slots__ = ("content", "partial")

    def __init__(self, make: Interner, content: Content, partial: Partial = ()) -> None:
        super().__init__(make, None, content.depth)
        self.content, self.partial = content, partial

    @property
    def can_end(self) -> bool:  # type: ignore[override]
        return not self.partial and bool(self.content.finish())

    def read(self, text: str) -> Threads:
        """The threads after characters that stand for themselves, read between characters."""
        content = self.content.extend(text)
        return () if content is None else (self.make(type(self), content, ()),)

    def _step(self, byte: int) -> Threads:
        return self._continue(byte) if self.partial else self._begin(byte)

    def _begin(self, byte: int) -> Threads:
        if byte < 0x80:
            return self._push(byte)
        if 0xC2 <= byte <= 0xDF:
            return self._bytes(byte & 0x1F, 1, 0x80)
        if 0xE0 <= byte <= 0xEF:
            return self._bytes(byte & 0x0F, 2, 0x800)
        if 0xF0 <= byte <= 0xF4:
            return self._bytes(byte & 0x07, 3, ASTRAL)
        return ()

    def _continue(self, byte: int) -> Threads:
        _, bits, rest, least = self.partial
        if not 0x80 <= byte <= 0xBF:
            return ()
        return self._bytes(bits << 6 | byte & 0x3F, rest - 1, least)

    def _bytes(self, bits: int, rest: int, least: int) -> Threads:
        low = max(bits << 6 * rest, least)
        high = min(((bits + 1) << 6 * rest) - 1, 0x10FFFF)
        if low > high or not self.content.allows(low, high):
            return ()
        return self._push(bits) if rest == 0 else self._with((BYTES, bits, rest, least))

    def _push(self, code_point: int) -> Threads:
        content = self.content.push(code_point)
        return () if content is None else (self.make(type(self), content, ()),)

    def _with(self, partial: Partial) -> Threads:
        return (self.make(type(self), self.content, partial),)

    @property
    def first_bytes(self) -> Collection[int]:
        return range(0x80, 0xC0) if self.partial else range(256)


class String(Text):
    """Inside a JSON string, after its opening quote. Escapes are read as what they stand for."""

    __slots__ = ()
    can_end = False

    def _begin(self, byte: int) -> Threads:
        if byte == _QUOTE:
            return self.content.finish()
        if byte == _BACKSLASH:
            return self._with((ESCAPE,)) if self._can_escape() else ()
        return super()._begin(byte) if byte >= 0x20 else ()

    def _continue(self, byte: int) -> Threads:
        kind, *fields = self.partial
        if kind == BYTES:
            return super()._continue(byte)
        if kind == ESCAPE:
            return self._escape(byte)
        if kind == HEX_DIGITS:
            return self._hex_digit(byte, *fields)
        if kind == LOW_BACKSLASH:
            return self._with((LOW_U, *fields)) if byte == _BACKSLASH else ()
        if kind == LOW_U:
            return self._with((LOW_DIGITS, *fields, 0, 0)) if byte == ord("u") else ()
        return self._low_digit(byte, *fields)

    def _can_escape(self) -> bool:
        allows = self.content.allows
        return (
            self._can_name(0, 0x10000) or allows(_QUOTE, _QUOTE) or allows(_BACKSLASH, _BACKSLASH)
        )

    def _escape(self, byte: int) -> Threads:
        if byte == ord("u"):
            return self._with((HEX_DIGITS, 0, 0)) if self._can_name(0, 0x10000) else ()
        if byte == ord("/") and not self.make.style.idle_escapes:
            return ()
        return self._push(_SHORT_ESCAPES[byte]) if byte in _SHORT_ESCAPES else ()

    def _hex_digit(self, byte: int, value: int, digits: int) -> Threads:
        if byte not in _HEX:
            return ()
        value, digits = value << 4 | _HEX[byte], digits + 1
        if not self._can_name(value << 4 * (4 - digits), 1 << 4 * (4 - digits)):
            return ()
        if digits < 4:
            return self._with((HEX_DIGITS, value, digits))
        if 0xD800 <= value <= 0xDBFF:
            return self._with((LOW_BACKSLASH, value - 0xD800))
        return self._push(value)

    def _can_name(self, low: int, size: int) -> bool:
        """Whether some allowed character's (first) UTF-16 unit is in low .. low + size - 1."""
        high = low + size - 1
        first, last = max(low, 0xD800), min(high, 0xDBFF)
        return self._names_unit(low, high) or (
            first <= last
            and self.content.allows(
                ASTRAL + (first - 0xD800 << 10), ASTRAL + (last - 0xD800 << 10) + 0x3FF
            )
        )

    def _names_unit(self, low: int, high: int) -> bool:
        if self.make.style.idle_escapes:
            return self.content.allows(low, high)
        ranges = ((low, min(high, 0x1F)), (max(low, 0x7F), high))
        return any(first <= last and self.content.allows(first, last) for first, last in ranges)

    def _low_digit(self, byte: int, surrogate: int, value: int, digits: int) -> Threads:
        if byte not in _HEX:
            return ()
        value, digits = value << 4 | _HEX[byte], digits + 1
        size = 1 << 4 * (4 - digits)
        first = max(value * size, 0xDC00) - 0xDC00
        last = min(value * size + size - 1, 0xDFFF) - 0xDC00
        base = ASTRAL + (surrogate << 10)
        if first > last or not self.content.allows(base + first, base + last):
            return ()
        if digits < 4:
            return self._with((LOW_DIGITS, surrogate, value, digits))
        return self._push(base + first)

    @property
    def first_bytes(self) -> Collection[int]:
        if self.partial:
            return _AFTER[self.partial[0]]
        if isinstance(self.content, Plain | Tracked):
            return _first_of(self.content.lang.dfa.edges[self.content.state])
        return range(0x20, 0xF5)


def _first_of(edges: Collection[tuple[int, int, int]]) -> Collection[int]:
    """The bytes that may begin a character of the edges, or end the string, where they are few."""
    if sum(min(hi, 0x7F) - lo + 1 for lo, hi, _ in edges if lo < 0x80) > 32:
        return range(0x20, 0xF5)
    ascii_ = (c for lo, hi, _ in edges for c in range(lo, min(hi, 0x7F) + 1))
    leads = range(0xC2, 0xF5) if any(hi >= 0x80 for _, hi, _ in edges) else ()
    return {_QUOTE, _BACKSLASH, *ascii_, *leads}
