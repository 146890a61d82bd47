"""RequestRow -> prompt token ids, through the chat template chosen at registration.

A template never sees content. It is rendered with one placeholder a message, and the contents
take the placeholders' places afterwards, known as content: braces stay braces, and a control
token written in a document stays text.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

from jinja2.exceptions import TemplateError

from model.config import ChatTemplateSpec, JinjaTemplate, RoleTemplates
from model.control_tokens import PromptTokenizer
from model.errors import ConfigError, RowError
from model.messages import Message
from model.presets import PRESETS
from model.rows import RequestRow

Part: TypeAlias = tuple[str, bool]  # text, and whether it is content
_PAD = "\n \t \n"  # whitespace around a placeholder, to see whether the template trims it


class TemplateRefused(Exception):
    """A template raised an error over the order or the kind of the messages."""


class Layout(Protocol):
    """A chat template: a conversation as parts, the assistant's turn opened at the end.

    `source` is the template's own text, in which its control tokens are written.
    """

    source: str

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[Part]:
        """Raises TemplateRefused for an order of roles that the template does not take."""


class ChatTemplate:
    """Turns rows into prompts. Thread-safe."""

    def __init__(self, layout: Layout, tokenizer: Any) -> None:
        self._layout = layout
        self._tokenizer = PromptTokenizer(tokenizer, layout.source)
        self._bos_id: int | None = tokenizer.bos_token_id
        self._adds_bos = isinstance(layout, RoleLayout) and _adds_bos(tokenizer)
        self._traits = Traits.of(layout)

    @classmethod
    def from_config(cls, spec: ChatTemplateSpec, tokenizer: Any) -> ChatTemplate:
        """The template `spec` names. Raises ConfigError when the model has none of its own."""
        if isinstance(spec, RoleTemplates):
            return cls(RoleLayout(spec), tokenizer)
        if isinstance(spec, JinjaTemplate):
            return cls(JinjaLayout(tokenizer, spec.jinja), tokenizer)
        if preset := PRESETS.get(spec):
            return cls(
                RoleLayout(preset.templates, trim=preset.trims, alternates=preset.alternates),
                tokenizer,
            )
        if not tokenizer.chat_template:
            raise ConfigError(
                "the model's tokenizer has no chat template; choose a role map or one of "
                f"{', '.join(PRESETS)} at registration"
            )
        return cls(JinjaLayout(tokenizer, None), tokenizer)

    @property
    def control_ids(self) -> dict[str, int]:
        """The tokenizer's control tokens, by their text."""
        return self._tokenizer.control_ids

    def render(self, row: RequestRow) -> list[int]:
        """Prompt token ids, with one begin-of-text token where the model has one.

        Raises RowError when the template cannot express the conversation.
        """
        ids = self._tokenizer.encode(self.parts(row))
        if self._bos_id is None:
            return ids
        start = 0
        while start < len(ids) and ids[start] == self._bos_id:
            start += 1
        return [self._bos_id, *ids[start:]] if start or self._adds_bos else ids

    def parts(self, row: RequestRow) -> list[Part]:
        """The prompt as text parts, before tokenizing."""
        messages = self._traits.fit(row.messages)
        try:
            return self._layout.render(messages, row.fields.enable_thinking)
        except TemplateRefused as error:
            raise RowError(
                f"the model's chat template refuses these messages: {error}", "INVALID_MESSAGES"
            ) from None


@dataclass(frozen=True)
class Traits:
    """What a template can express, found out by trying."""

    system: bool
    systems: bool
    late_system: bool
    tool: bool
    same_role_twice: bool

    @classmethod
    def of(cls, layout: Layout) -> Traits:
        return cls(
            system=_renders(layout, "system user"),
            systems=_renders(layout, "system system user"),
            late_system=_renders(layout, "user system user")
            and _renders(layout, "user assistant system user"),
            tool=_renders(layout, "user assistant tool"),
            same_role_twice=_renders(layout, "user user"),
        )

    def fit(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation in roles and an order that the template takes."""
        head, rest = _split_system(messages)
        if not self.late_system:
            rest = _recast(rest, "system")
        if not self.tool:
            rest = _recast(rest, "tool")
        if head and not self.system:
            head, rest = (), (Message("user", _join(head)), *rest)
            rest = _merge_first_two(rest)
        elif len(head) > 1 and not self.systems:
            head = (Message("system", _join(head)),)
        return (*head, *(rest if self.same_role_twice else _merge(rest)))


def _renders(layout: Layout, roles: str) -> bool:
    """Whether the template shows every content of such a conversation."""
    probe = [Message(role, f"probe {at}") for at, role in enumerate(roles.split())]  # type: ignore[arg-type]
    try:
        shown = [text.strip() for text, content in layout.render(probe, None) if content]
    except TemplateRefused:
        return False
    return shown == [message.content for message in probe]


def _split_system(
    messages: Sequence[Message],
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    count = next((at for at, m in enumerate(messages) if m.role != "system"), len(messages))
    return tuple(messages[:count]), tuple(messages[count:])


def _recast(messages: Sequence[Message], role: str) -> tuple[Message, ...]:
    return tuple(replace(m, role="user") if m.role == role else m for m in messages)


def _join(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.content for message in messages)


def _merge_first_two(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    if len(messages) > 1 and messages[1].role == messages[0].role:
        return (replace(messages[1], content=_join(messages[:2])), *messages[2:])
    return messages


def _merge(messages: Sequence[Message]) -> tuple[Message, ...]:
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = replace(merged[-1], content=_join([merged[-1], message]))
        else:
            merged.append(message)
    return tuple(merged)


class RoleLayout:
    """A template a role, with `pre_prompt` before all messages and `post_prompt` after them."""

    def __init__(
        self, spec: RoleTemplates, *, trim: bool = False, alternates: bool = False
    ) -> None:
        self._spec, self._trim, self._alternates = spec, trim, alternates
        self._frames = {role: tuple(t.split("{}")) for role, t in spec.roles.items()}
        self.source = "".join((spec.pre_prompt, *spec.roles.values(), spec.post_prompt))

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[Part]:
        if self._alternates and any(a.role == b.role for a, b in pairwise(messages)):
            raise TemplateRefused("roles must alternate")
        parts: list[Part] = [(self._spec.pre_prompt, False)]
        for message in messages:
            if message.role not in self._frames:
                raise TemplateRefused(f"it has no role {message.role!r}")
            before, after = self._frames[message.role]
            content = message.content.strip() if self._trim else message.content
            parts += [(before, False), (content, True), (after, False)]
        return [*parts, (self._spec.post_prompt, False)]


class JinjaLayout:
    """A Jinja chat template, the tokenizer's own or a given one, in transformers' sandbox."""

    def __init__(self, tokenizer: Any, template: str | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.source = template or str(tokenizer.chat_template)
        self._mark = f"\ue002{secrets.token_hex(8)}-"
        pad = re.escape(_PAD)
        self._place = re.compile(f"({pad})?{self._mark}(name|content)-(\\d+)\ue003({pad})?")

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[Part]:
        text = self._text(messages, thinking, open_turn=True)
        return self._parts(text + self._missing_header(text, messages, thinking), messages)

    def _missing_header(self, text: str, messages: Sequence[Message], thinking: bool | None) -> str:
        """The assistant's header, for a template that does not open the turn when asked to."""
        if not self._ignores_open_turn:
            return ""
        turn = self._text([*messages, Message("assistant", "")], thinking, open_turn=False)
        found = [place for place in self._place.finditer(turn) if place[3] == str(len(messages))]
        header = turn[len(text) : found[0].start()] if found and turn.startswith(text) else ""
        return header if header.strip() else ""

    @cached_property
    def _ignores_open_turn(self) -> bool:
        probe = [Message("user", "")]
        opened = self._text(probe, None, open_turn=True)
        return opened == self._text(probe, None, open_turn=False)

    def _text(self, messages: Sequence[Message], thinking: bool | None, *, open_turn: bool) -> str:
        """The rendered template, with placeholders for contents and names."""
        kwargs = {} if thinking is None else {"enable_thinking": thinking}
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                [self._blank(at, message) for at, message in enumerate(messages)],
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=open_turn,
                **kwargs,
            )
        except TemplateError as error:
            raise TemplateRefused(str(error)) from None
        except (TypeError, KeyError, AttributeError) as error:  # a template's own slips
            raise TemplateRefused(f"{type(error).__name__} in the template") from None
        return rendered

    def _blank(self, at: int, message: Message) -> dict[str, str]:
        blank = {"role": message.role, "content": self._placeholder("content", at)}
        return blank if message.name is None else {**blank, "name": self._placeholder("name", at)}

    def _placeholder(self, field: str, at: int) -> str:
        return f"{_PAD}{self._mark}{field}-{at}\ue003{_PAD}"

    def _parts(self, text: str, messages: Sequence[Message]) -> list[Part]:
        parts: list[Part] = []
        end = 0
        for place in self._place.finditer(text):
            content = getattr(messages[int(place[3])], place[2])
            content = content if place[1] else content.lstrip()
            content = content if place[4] else content.rstrip()
            parts += [(text[end : place.start()], False), (content, True)]
            end = place.end()
        return [*parts, (text[end:], False)]


def _adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer by itself puts a begin-of-text token before a text."""
    ids: list[int] = tokenizer("a").input_ids
    return tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id]
