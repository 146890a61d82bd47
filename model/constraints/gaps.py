"""The whitespace and punctuation between the parts of an array or object, walked once for all.

What may stand there depends on the container's kind and on whether it can close or go on, not on
its schema, so that one walk serves every container of a vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from model.constraints.containers import AFTER_COMMA, AFTER_VALUE, Container
from model.constraints.shapes import Style
from model.constraints.threads import Hole, Interner, Thread, Threads

_BLANKS = frozenset(b" \t\n")


class Tree(Protocol):
    """What is walked: a vocabulary's trie, or its tree of suffixes."""

    def children(self, node: int) -> dict[int, int]: ...


class Place(NamedTuple):
    """What of a container matters in a gap."""

    style: Style
    closing: int
    phase: int
    gap: int
    can_close: bool
    can_go_on: bool

    @classmethod
    def of(cls, container: Container) -> Place:
        return cls(
            container.make.style,
            container.closing,
            container.phase,
            container.gap,
            container.phase != AFTER_COMMA and container.can_close,
            container.phase == AFTER_COMMA or container.can_go_on,
        )


@dataclass(frozen=True)
class Gap:
    """The nodes of a tree that a gap reaches, where it closes, and where a part can begin."""

    nodes: tuple[int, ...]
    closes: tuple[int, ...]
    begins: tuple[int, ...]


class Gaps:
    """The gaps of one tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._kept: dict[tuple[Place, int], Gap] = {}

    def get(self, place: Place, node: int) -> Gap:
        """Below a node of the tree."""
        found = self._kept.get((place, node))
        if found is None:
            found = self._kept[place, node] = self._walk(place, node)
        return found

    def _walk(self, place: Place, node: int) -> Gap:
        make = Interner(place.style)
        nodes: list[int] = []
        closes: list[int] = []
        begins: list[int] = []
        pending: list[tuple[Thread, int]] = [(make(_Bare, place, place.phase, place.gap), node)]
        while pending:
            thread, here = pending.pop()
            if isinstance(thread, Hole):
                closes.append(here)
                continue
            assert isinstance(thread, _Bare)
            children = self._tree.children(here)
            if thread.may_begin and not _BLANKS.issuperset(children):
                begins.append(here)
            for byte, child in children.items():
                for after in thread.step(byte) if byte in thread.first_bytes else ():
                    nodes.append(child)
                    pending.append((after, child))
        make.clear()  # its threads and it refer to each other
        return Gap(tuple(nodes), tuple(closes), tuple(begins))


class _Bare(Container):
    """A container of which only the gap is known; its parts are not begun."""

    __slots__ = ("closing", "place")

    def __init__(self, make: Interner, place: Place, phase: int, gap: int) -> None:
        super().__init__(make, make(Hole, 0), 1)
        self.place, self.phase, self.gap = place, phase, gap
        self.closing = place.closing

    @property
    def can_close(self) -> bool:
        return self.place.can_close

    @property
    def can_go_on(self) -> bool:
        return self.place.can_go_on

    @property
    def may_begin(self) -> bool:
        return self.phase != AFTER_VALUE and (self.phase == AFTER_COMMA or self.can_go_on)

    @property
    def first_bytes(self) -> Collection[int]:
        return {*b" \t\n,", self.closing}

    def begin_part(self, byte: int) -> Threads:
        return ()

    def _moved(self, phase: int, gap: int) -> Thread:
        return self.make(_Bare, self.place, phase, gap)
