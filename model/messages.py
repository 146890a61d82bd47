"""A row's conversation: OpenAI chat messages, or one prompt, as a tuple of Messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from model.cells import kind, read_json
from model.errors import RowError

Role = Literal["system", "user", "assistant", "tool"]
_SYNONYMS = {"developer": "system", "function": "tool"}
_KEYS = {"role", "content", "name", "tool_call_id", "refusal"}
MAX_MESSAGES = 10_000


@dataclass(frozen=True)
class Message:
    """One turn. `content` is data: no part of it is ever read as template or control token."""

    role: Role
    content: str
    name: str | None = None


def read_conversation(
    prompt: Any, messages: Any, system_prompt: str, *, own_system: bool
) -> tuple[Message, ...]:
    """The turns of a row that has a prompt or messages.

    `own_system` says that the row itself gave `system_prompt`: it then comes before a system
    message of the row; the call's system prompt gives way to one.
    """
    if messages is None:
        turns: tuple[Message, ...] = (Message("user", _prompt(prompt)),)
    elif prompt is not None:
        raise RowError("a row has either prompt or messages, not both", "INVALID_MESSAGES")
    else:
        turns = _turns(messages)
    if system_prompt and (own_system or turns[0].role != "system"):
        turns = (Message("system", system_prompt), *turns)
    return turns


def _prompt(prompt: Any) -> str:
    if prompt is None:
        raise RowError("the row has neither prompt nor messages", "INVALID_PROMPT")
    if not isinstance(prompt, str):
        raise RowError(f"prompt must be text, got {kind(prompt)}", "INVALID_PROMPT")
    return _clean(prompt, "prompt")


def _turns(messages: Any) -> tuple[Message, ...]:
    if isinstance(messages, str):
        messages = read_json(messages, "messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
        raise RowError(
            f"messages must be a list of 1 to {MAX_MESSAGES} chat messages, got {kind(messages)}"
            + (" without any" if messages == [] else ""),
            "INVALID_MESSAGES",
        )
    return tuple(_message(item, f"messages[{place}]") for place, item in enumerate(messages))


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict):
        raise _wrong(where, f"must be an object with role and content, got {kind(item)}")
    if unknown := [key for key in item if key not in _KEYS and item[key] is not None]:
        raise _wrong(where, f"has keys that are not supported: {', '.join(map(str, unknown))}")
    name = item.get("name")
    if name is not None and not isinstance(name, str):
        raise _wrong(where, f"name must be text, got {kind(name)}")
    return Message(_role(item.get("role"), where), _content(item.get("content"), where), name)


def _role(role: Any, where: str) -> Role:
    role = _SYNONYMS.get(role, role) if isinstance(role, str) else role
    if role not in get_args(Role):
        raise _wrong(where, "role must be one of system, developer, user, assistant, tool")
    return cast(Role, role)


def _content(content: Any, where: str) -> str:
    if isinstance(content, list):
        return "\n".join(_part(part, f"{where}/content/{at}") for at, part in enumerate(content))
    if not isinstance(content, str):
        raise _wrong(where, f"content must be text or a list of text parts, got {kind(content)}")
    return _clean(content, where)


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return _clean(part, where)
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        raise _wrong(where, 'must be a text part, {"type": "text", "text": ...}')
    if part.get("type") not in ("text", "input_text", "output_text"):
        raise _wrong(where, "has a type that is not supported: only text parts are")
    return _clean(part["text"], where)


def _clean(text: str, where: str) -> str:
    """The text, if it can be encoded: half a surrogate pair cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RowError(
            f"{where}: character {error.start} is half a surrogate pair", "INVALID_TEXT"
        ) from None
    return text


def _wrong(where: str, what: str) -> RowError:
    return RowError(f"{where} {what}", "INVALID_MESSAGES")
