"""Which tokens stay inside a string, number or text, and in which it ends.

A profile depends only on the language and the place in it, not on what is around the content, so it
is computed once and serves every mask of every schema that has such content.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from model.constraints import token_sets, trie_walk
from model.constraints.dfa import ANY_TEXT
from model.constraints.partials import Partial
from model.constraints.shapes import StringLang
from model.constraints.suffixes import Ends, Suffixes
from model.constraints.trie import NOT_COUNTED, Trie, Walked
from model.constraints.vocabulary import Vocabulary

Mask = NDArray[np.int32]
Int32 = NDArray[np.int32]

ANYTHING = StringLang(ANY_TEXT)
_PROFILE_BYTES = 700


@dataclass(frozen=True, eq=False)
class Profile:
    """What content does next, below a node of the trie.

    `inside` is the packed mask of the tokens that end within the content, `ends` the tokens in
    which it ends. `exits` are the nodes where it has just ended, below `start`, and `reads` the
    characters it held there: int32 [exits] each.
    """

    inside: Mask
    ends: Ends
    exits: Int32
    reads: Int32
    start: int

    @cached_property
    def _by_length(self) -> dict[int, list[int]]:
        """The exits by how many characters the content held."""
        found: dict[int, list[int]] = {}
        for exit_, read in zip(self.exits.tolist(), self.reads.tolist(), strict=True):
            found.setdefault(read, []).append(exit_)
        return found

    @cached_property
    def _by_text(self) -> dict[int, dict[str, list[int]]]:
        return {}

    def texts(self, trie: Trie) -> Iterator[tuple[str, list[int]]]:
        """What the content may have ended as, and the exits where it has."""
        for length in self._by_length:
            yield from self._exits_by_text(trie, length).items()

    def exits_of(self, trie: Trie, texts: Collection[str]) -> set[int]:
        """The exits where the content has ended as one of the texts."""
        found: set[int] = set()
        for text in texts:
            if len(text) in self._by_length:
                found.update(self._exits_by_text(trie, len(text)).get(text, ()))
        return found

    def _exits_by_text(self, trie: Trie, length: int) -> dict[str, list[int]]:
        found = self._by_text.get(length)
        if found is None:
            found = {}
            for exit_ in self._by_length[length]:
                found.setdefault(self.text_of(trie, exit_), []).append(exit_)
            self._by_text[length] = found
        return found

    def text_of(self, trie: Trie, exit_: int) -> str:
        """The content that has ended at an exit."""
        found = bytearray()
        while exit_ != self.start:
            found.append(int(trie.byte[exit_]))
            exit_ = int(trie.parent[exit_])
        return str(json.loads(b'"' + bytes(reversed(found))))

    @property
    def nbytes(self) -> int:
        return _PROFILE_BYTES + self.inside.nbytes + self.ends.nbytes + 2 * self.exits.nbytes


class Profiles:
    """The profiles of one vocabulary, the oldest first out beyond `max_bytes`."""

    def __init__(self, vocabulary: Vocabulary, max_bytes: int) -> None:
        self.vocabulary, self.trie = vocabulary, vocabulary.trie
        self.reach, self.max_bytes, self.used_bytes = vocabulary.max_token_length, max_bytes, 0
        self.suffixes = Suffixes(self.trie)
        self._kept: OrderedDict[tuple[object, ...], Profile] = OrderedDict()
        self._by_length: dict[tuple[StringLang, Partial, int], Lengthwise] = {}

    def string(
        self, lang: StringLang, state: int, length: int, node: int, partial: Partial = ()
    ) -> Profile:
        """Inside a JSON string; `partial` is what is half read of a character."""
        place = self.place(lang, state, length, partial)
        key = ("string", lang, place, partial, node)
        return self._get(key, lambda: self._string(lang, place, partial, node))

    def number(self, lang: StringLang, state: int, node: int) -> Profile:
        """Inside a number."""
        return self._get(("number", lang, state, node), lambda: self._number(lang, state, node))

    def text(
        self, lang: StringLang, state: int, length: int, node: int, partial: Partial = ()
    ) -> Profile:
        """Inside plain text, which ends with the answer; `partial` as in `string`."""
        place = self.place(lang, state, length, partial)
        key = ("text", lang, place, partial, node)
        return self._get(key, lambda: self._text(lang, place, partial, node))

    def place(
        self, lang: StringLang, state: int, length: int, partial: Partial = ()
    ) -> tuple[int, int]:
        """Equal where equal tokens can come next: the state, and the length where it matters."""
        if partial:
            length = lang.lengthen(length, 1)  # no character of the walk counts this one
        return lang.mask_place(state, length, self.reach)

    def endings(
        self, profile: Profile, avoid: Collection[str]
    ) -> Iterator[tuple[str | None, Ends]]:
        """The tokens in which content ends as anything but the texts to avoid.

        They come with the text where they may hold a second one, which may not be the same; for
        all others, all at once, it does not matter.
        """
        taken = profile.exits_of(self.trie, avoid)
        exits, ends = profile.exits.tolist(), profile.ends
        if taken:
            exits = [exit_ for exit_ in exits if exit_ not in taken]
            ends = self.suffixes.ends_at(np.array(exits, np.int32))
        near, far = self.suffixes.near_and_far(ends)
        yield None, near
        for exit_ in exits if len(far.ids) else ():
            _, far = self.suffixes.near_and_far(self.suffixes.ends_below(exit_))
            if len(far.ids):
                yield profile.text_of(self.trie, exit_), far

    def _get(self, key: tuple[object, ...], build: Callable[[], Profile]) -> Profile:
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = build()
            self.used_bytes += found.nbytes
            while self.used_bytes > self.max_bytes and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self.used_bytes -= dropped.nbytes
                self._by_length.clear()  # they hold what profiles hold, and more
        return found

    def _string(
        self, lang: StringLang, place: tuple[int, int], partial: Partial, node: int
    ) -> Profile:
        state, length = place
        if self._takes_anything(lang, state, partial):
            return self._of_anything(lang, state, node)
        if lang.is_counted and len(lang.dfa.edges) == 1:
            least = max(lang.minimum - length, 0)
            most = None if lang.maximum is None else lang.maximum - length
            return self._lengthwise(StringLang(lang.dfa), partial, node).cut(least, most)
        walked = self._walk(lang, place, partial, node, in_json=True)
        accepting = _accepting(lang, walked)
        if lang.is_counted:
            accepting &= _fits(lang, length, walked.exit_reads)
        exits, reads = walked.exits[accepting], walked.exit_reads[accepting]
        return self._profile(walked.ids, exits, reads, node)

    def _takes_anything(self, lang: StringLang, state: int, partial: Partial) -> bool:
        """Whether only what the content may end as tells the language from that of any text."""
        if partial or lang.is_counted or lang == ANYTHING:
            return False
        return trie_walk.never_refuses(*lang.dfa.arrays, state)

    def _of_anything(self, lang: StringLang, state: int, node: int) -> Profile:
        anything = self.string(ANYTHING, 0, 0, node)
        accepted = [
            exit_
            for text, exits in anything.texts(self.trie)
            if lang.accepts(*(lang.read(state, 0, text) or (-1, 0)))
            for exit_ in exits
        ]
        keep = np.isin(anything.exits, accepted)
        exits, reads = anything.exits[keep], anything.reads[keep]
        return Profile(anything.inside, self.suffixes.ends_at(exits), exits, reads, node)

    def _walk(
        self,
        lang: StringLang,
        place: tuple[int, int],
        partial: Partial,
        node: int,
        *,
        in_json: bool,
    ) -> Walked:
        state, length = place
        live = live_places(lang, length, self.trie.levels) if lang.is_counted else NOT_COUNTED
        ends = self.suffixes.quoted
        return self.trie.walk(lang.dfa, state, partial, node, in_json=in_json, ends=ends, live=live)

    def _lengthwise(self, lang: StringLang, partial: Partial, node: int) -> Lengthwise:
        """The tokens of a one-state language by how many characters they hold."""
        key = (lang, partial, node)
        found = self._by_length.get(key)
        if found is None:
            walked = self._walk(lang, (0, 0), partial, node, in_json=True)
            found = self._by_length[key] = Lengthwise(self, walked, node)
        return found

    def _number(self, lang: StringLang, state: int, node: int) -> Profile:
        ends = self.suffixes.number_ends
        walked = self.trie.walk(lang.dfa, state, (), node, in_json=False, ends=ends)
        accepting = _accepting(lang, walked)
        accepting &= walked.exits != node  # there the number goes on below without a token
        return self._profile(
            walked.ids, walked.exits[accepting], walked.exit_reads[accepting], node
        )

    def _text(
        self, lang: StringLang, place: tuple[int, int], partial: Partial, node: int
    ) -> Profile:
        walked = self._walk(lang, place, partial, node, in_json=False)
        nowhere = np.empty(0, dtype=np.int32)
        return self._profile(walked.ids, nowhere, nowhere, node)

    def _profile(self, ids: Int32, exits: Int32, reads: Int32, node: int) -> Profile:
        inside = self.vocabulary.empty_mask()
        token_sets.set_tokens(inside, ids)
        return Profile(inside, self.suffixes.ends_at(exits), exits, reads, node)


class Lengthwise:
    """The profile of an uncounted language of one state, cut to what a length still allows.

    There a token's characters are all that matters, so that few cuts differ.
    """

    def __init__(self, profiles: Profiles, walked: Walked, node: int) -> None:
        self._profiles, self._walked, self._node = profiles, walked, node
        reads = (walked.id_reads.max(initial=0), walked.exit_reads.max(initial=0))
        self._longest = int(max(reads))
        self._cuts: dict[tuple[int, int], Profile] = {}

    def cut(self, least: int, most: int | None) -> Profile:
        """Tokens of at most `most` characters; the content may end after at least `least`."""
        least = min(least, self._longest + 1)
        most = self._longest if most is None else min(most, self._longest)
        if (least, most) not in self._cuts:
            self._cuts[least, most] = self._cut(least, most)
        return self._cuts[least, most]

    def _cut(self, least: int, most: int) -> Profile:
        walked = self._walked
        fits = (walked.exit_reads >= least) & (walked.exit_reads <= most)
        ids = walked.ids[walked.id_reads <= most]
        return self._profiles._profile(ids, walked.exits[fits], walked.exit_reads[fits], self._node)


def _accepting(lang: StringLang, walked: Walked) -> NDArray[np.bool_]:
    """bool [exits]: whether the automaton accepts there."""
    accepts = np.zeros(len(lang.dfa.edges), dtype=np.bool_)
    accepts[list(lang.dfa.accepting)] = True
    return accepts[walked.exit_states]


def _fits(lang: StringLang, length: int, reads: Int32) -> NDArray[np.bool_]:
    """Whether a text of `length` and so many more characters has an allowed length."""
    total = length + reads
    found: NDArray[np.bool_] = total >= lang.minimum
    return found if lang.maximum is None else found & (total <= lang.maximum)


def live_places(lang: StringLang, length: int, most: int) -> NDArray[np.bool_]:
    """bool [states, most + 1]: what can be completed after so many characters from `length` on."""
    found = np.empty((len(lang.dfa.edges), most + 1), dtype=np.bool_)
    for read in range(most + 1):
        found[:, read] = lang.live_states(lang.lengthen(length, read))
    return found
