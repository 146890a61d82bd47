"""The tokens that a thread allows, found by walking the vocabulary's trie with it.

Strings, numbers and names are read with profiles, which are ready for every place in them; only
what is between them is walked byte by byte, and there few bytes are allowed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model.constraints.containers import Colon, Named, Object
from model.constraints.profiles import NameProfiles, Profile, Profiles
from model.constraints.shapes import NameTrie
from model.constraints.threads import Number, Plain, String, Text, Thread, Threads, Tracked
from model.constraints.vocabulary import Vocabulary

Mask = NDArray[np.int32]

_PLACEHOLDER = "\x00"  # stands for a text that is not known yet, and equals none that is
_PROFILES_MAX_BYTES = 128 << 20
_FEW = 64


class Tree(Protocol):
    """What is walked: the vocabulary's trie, or the suffixes of a profile."""

    def children(self, node: int) -> dict[int, int]: ...
    def tokens_at(self, node: int) -> NDArray[np.int32] | Sequence[int]: ...


class Allowed:
    """Token ids gathered by one walk, as a boolean row of the vocabulary."""

    def __init__(self, size: int) -> None:
        self._row = np.zeros(size, dtype=np.bool_)
        self._few: list[int] = []  # ids to set all at once: setting each costs more than a walk

    def add(self, ids: NDArray[np.int32] | Sequence[int]) -> None:
        if isinstance(ids, np.ndarray) and len(ids) > _FEW:
            self._row[ids] = True
        else:
            self._few.extend(ids.tolist() if isinstance(ids, np.ndarray) else ids)

    @property
    def row(self) -> NDArray[np.bool_]:
        """bool [size]: what was added so far."""
        if self._few:
            self._row[self._few] = True
            self._few = []
        return self._row


class Masks:
    """The packed masks of threads, for one vocabulary. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.trie = vocabulary.trie
        self.profiles = Profiles(vocabulary, _PROFILES_MAX_BYTES)

    def of(self, thread: Thread, names: dict[NameTrie, NameProfiles]) -> Mask:
        """The packed mask of one thread; `names` keeps the name profiles of its schema."""
        allowed = Allowed(self.vocabulary.words * 32)
        Walk(self, names, allowed).run(thread)
        packed = np.packbits(allowed.row, bitorder="little").view("<i4")
        return packed.astype(np.int32, copy=False)

    def key(self, thread: Thread) -> Hashable:
        """Equal for threads with equal masks, where that is cheap to see."""
        if not isinstance(thread, String | Text) or thread.partial:
            return thread
        content = thread.content
        if isinstance(content, Plain):
            place = content.lang.mask_place(content.state, content.length, self.profiles.reach)
            return (type(thread), content.lang, place, content.below)
        if isinstance(content, Tracked) and _is_wide(content):
            place = content.lang.mask_place(content.state, content.length, self.profiles.reach)
            rests = frozenset(_rests(content))
            return (type(thread), content.lang, place, content.slot, rests)
        return thread


class Walk:
    """One walk of the trie from its root."""

    def __init__(self, masks: Masks, names: dict[NameTrie, NameProfiles], allowed: Allowed) -> None:
        self.masks, self.names, self.allowed = masks, names, allowed
        self.trie: Tree = masks.trie
        self._seen: set[tuple[Thread, int, int]] = set()
        self._pending: list[tuple[Thread, Tree, int]] = []

    def run(self, thread: Thread) -> None:
        self._pending.append((thread, self.trie, 0))
        while self._pending:
            self._visit(*self._pending.pop())

    def _visit(self, thread: Thread, tree: Tree, node: int) -> None:
        key = (thread, id(tree), node)
        if key in self._seen:
            return
        self._seen.add(key)
        if tree is self.trie and self._visit_profile(thread, node):
            return
        self._step(thread, tree, node)

    def _step(self, thread: Thread, tree: Tree, node: int) -> None:
        """Tries each byte that both the thread and the tree have."""
        children = tree.children(node)
        if not children:
            return
        first = thread.first_bytes
        if not isinstance(first, range) and len(children) > 16:
            pairs = [(byte, children[byte]) for byte in set(first) if byte in children]
        else:
            pairs = [(byte, child) for byte, child in children.items() if byte in first]
        for byte, child in pairs:
            after = thread.step(byte)
            if after:
                self.allowed.add(tree.tokens_at(child))
                self._pending += [(following, tree, child) for following in after]

    def _visit_profile(self, thread: Thread, node: int) -> bool:
        """Reads content with its profile; whether there is one."""
        if isinstance(thread, Number):
            return self._number(thread, node)
        if not isinstance(thread, Text) or thread.partial:
            return False
        content = thread.content
        if isinstance(content, Named):
            return self._named(thread, content, node)
        if isinstance(content, Plain):
            self._plain(thread, content, node)
            return True
        if isinstance(content, Tracked) and _is_wide(content):
            self._tracked(content, node)
            return True
        return False

    def _number(self, thread: Number, node: int) -> bool:
        content = thread.content
        if not isinstance(content, Plain):
            return False
        profile = self.masks.profiles.number(content.lang, content.state, node)
        self.allowed.add(profile.inside)
        self._pending += [(following, self.trie, node) for following in content.finish()]
        self._pending += [(content.below, self.trie, exit_) for exit_, _ in profile.exits]
        return True

    def _plain(self, thread: Text, content: Plain, node: int) -> None:
        profiles = self.masks.profiles
        build = profiles.string if isinstance(thread, String) else profiles.text
        profile = build(content.lang, content.state, content.length, node)
        self.allowed.add(profile.inside)
        if isinstance(thread, String):
            self._leave(profile, (content.below,))

    def _leave(self, profile: Profile, following: Threads) -> None:
        """Goes on after the content's end, at all exits together."""
        if not profile.exits:
            return
        suffixes = profile.suffixes
        self.allowed.add(suffixes.tokens_at(0))
        self._pending += [(thread, suffixes, 0) for thread in following]

    def _tracked(self, content: Tracked, node: int) -> None:
        profile = self.masks.profiles.string(content.lang, content.state, content.length, node)
        self.allowed.add(profile.inside)
        taken = [token for rest in _rests(content) for token in profile.tokens_ending(rest)]
        if not taken:
            self._leave(profile, content.slot.resume(_PLACEHOLDER))
            return
        beyond = Allowed(self.masks.vocabulary.words * 32)
        walk = Walk(self.masks, self.names, beyond)
        walk._leave(profile, content.slot.resume(_PLACEHOLDER))
        walk._finish()
        beyond.row[taken] = False
        self.allowed.add(np.flatnonzero(beyond.row).astype(np.int32))

    def _finish(self) -> None:
        while self._pending:
            self._visit(*self._pending.pop())

    def _named(self, thread: Text, content: Named, node: int) -> bool:
        names = content.object.shape.trie
        if names not in self.names:
            self.names[names] = NameProfiles(self.masks.profiles, names)
        profile = self.names[names].get(content.node, node)
        open_names = content.object.open_names
        for reach, ids in profile.inside:
            if reach & open_names:
                self.allowed.add(ids)
        for exit_, index in profile.exits:
            if open_names >> index & 1:
                self.allowed.add(self.masks.trie.tokens_at(exit_))
                self._pending.append((_after_name(content.object, index), self.trie, exit_))
        can_escape = names.has_escapes or content.make.style.idle_escapes
        for backslash, name_node in profile.escapes if can_escape else ():
            self._escape(content, names, name_node, backslash)
        return True

    def _escape(self, content: Named, names: NameTrie, name_node: int, node: int) -> None:
        if not names.reach[name_node] & content.object.open_names:
            return
        before = content.make(String, content.make(Named, content.object, name_node), ())
        for after in before.step(ord("\\")):
            self.allowed.add(self.masks.trie.tokens_at(node))
            self._pending.append((after, self.trie, node))


def _after_name(object_: Object, index: int) -> Thread:
    return object_.make(Colon, object_.shape.nodes[index], 0, object_.with_name(index))


def _is_wide(content: Tracked) -> bool:
    """Whether the content's language is endless, so that what it avoids can always be avoided."""
    return content.lang.dfa.counts[content.state] is None


def _rests(content: Tracked) -> list[str]:
    """What would complete each text that the content must not become."""
    return [t[len(content.text) :] for t in content.slot.avoid if t.startswith(content.text)]
