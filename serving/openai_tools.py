"""OpenAI's function tools, as a constraint on the answer and a way to read it.

A call that must happen (`tool_choice` "required" or a named function) is a JSON schema, so its
arguments always obey the function's parameters.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from serving.errors import ApiError
from serving.openai_request import ChatRequest, Function, NamedTool

ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class Tools:
    """The functions that the answer must call one of; empty for a plain answer."""

    functions: tuple[Function, ...] = ()

    @classmethod
    def of(cls, request: ChatRequest) -> Tools:
        """What a request asks for. Raises ApiError for what cannot be enforced."""
        offered = {tool.function.name: tool.function for tool in request.tools or []}
        choice = request.tool_choice
        if not offered or choice == "none":
            return cls()
        if isinstance(choice, NamedTool):
            return cls((_known(offered, choice.function.name),))
        if choice == "required":
            return cls(tuple(offered.values()))
        raise ApiError(
            400,
            'tool_choice: "auto" is not supported, since whether to call is not a constraint; '
            'ask for "required", a named function or "none".',
        )

    def constraint(self) -> dict[str, Any]:
        """The column that makes the answer a call of one of the functions."""
        if not self.functions:
            return {}
        calls = [_call_schema(function) for function in self.functions]
        return {"json_schema": calls[0] if len(calls) == 1 else _any_of(calls)}

    def told(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The conversation in plain turns, opened by what the functions are."""
        turns = [_plain(message) for message in messages]
        if not self.functions:
            return turns
        listed = [
            f.model_dump(include={"name", "description", "parameters"}) for f in self.functions
        ]
        text = "Answer by calling one of these functions, as JSON with name and arguments:\n"
        text += json.dumps(listed, ensure_ascii=False)
        if turns[0].get("role") in ("system", "developer"):
            opening = {**turns[0], "content": f"{turns[0].get('content') or ''}\n\n{text}"}
            return [opening, *turns[1:]]
        return [{"role": "system", "content": text}, *turns]

    def read(self, text: str) -> dict[str, Any]:
        """The `content` and `tool_calls` of the answer's message."""
        if not self.functions:
            return {"content": text}
        try:
            call = json.loads(text)
        except ValueError:
            return {"content": text}
        function = {
            "name": call["name"],
            "arguments": json.dumps(call["arguments"], ensure_ascii=False),
        }
        tool_call = {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": function,
        }
        return {"content": None, "tool_calls": [tool_call]}


def _known(offered: dict[str, Function], name: str) -> Function:
    if name not in offered:
        raise ApiError(
            400, f"tool_choice names {name!r}, which is not among tools: {list(offered)}."
        )
    return offered[name]


def _call_schema(function: Function) -> dict[str, Any]:
    """A call of `function`; definitions move to the root, where its references look for them."""
    parameters = dict(function.parameters or ANY_OBJECT)
    schema: dict[str, Any] = {
        key: parameters.pop(key) for key in ("$defs", "definitions") if key in parameters
    }
    schema["type"] = "object"
    schema["properties"] = {"name": {"const": function.name}, "arguments": parameters}
    schema["required"] = ["name", "arguments"]
    schema["additionalProperties"] = False
    return schema


def _any_of(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """One of `calls`, their definitions together at the root. ApiError where names clash."""
    root: dict[str, Any] = {"anyOf": calls}
    for key in ("$defs", "definitions"):
        for definitions in [call.pop(key) for call in calls if key in call]:
            shared = root.setdefault(key, {})
            if any(shared.get(name, schema) != schema for name, schema in definitions.items()):
                raise ApiError(400, f"tools: two functions define the same name in {key}.")
            shared.update(definitions)
    return root


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """A turn without what only OpenAI's own servers read; calls made before become their text."""
    kept = {
        k: v for k, v in message.items() if k not in ("tool_calls", "refusal", "audio") or not v
    }
    kept = {k: v for k, v in kept.items() if v is not None or k == "content"}
    if message.get("tool_calls"):
        calls = [call.get("function") for call in message["tool_calls"] if isinstance(call, dict)]
        kept["content"] = json.dumps(calls, ensure_ascii=False)
    return kept
