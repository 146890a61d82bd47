"""Tokenizing a prompt so that only its template's own parts can become control tokens.

A chat template and its contents are one text to a tokenizer, which finds `<|im_end|>` in a
document as readily as in the template. Here the template's control tokens are first renamed to
names that nobody can guess, added to a copy of the tokenizer; in that copy the real names are
plain text. The text is still encoded whole, so that everything else is as without the renaming.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Tokenizer

from model.errors import ConfigError

_MARKUP = re.compile(r"<[|｜].*[|｜]>|\[/?[A-Z_]+\]", re.DOTALL)


class PromptTokenizer:
    """Encodes prompts given in parts, template and content told apart. Thread-safe.

    `template` is the chat template's text: a token written there is a control token.
    """

    def __init__(self, tokenizer: Any, template: str) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(
                "the model's tokenizer has no tokenizer.json; save the model with a fast tokenizer"
            )
        described = json.loads(backend.to_str())
        controls = [token for token in described["added_tokens"] if _is_control(token, template)]
        for token in controls:
            token["special"] = True  # or `encode_special_tokens` would not cover it
        self.control_ids: dict[str, int] = {token["content"]: token["id"] for token in controls}
        self._names = {text: f"\ue000{secrets.token_hex(8)}\ue001" for text in self.control_ids}
        self._tokenizer = Tokenizer.from_str(json.dumps(described))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.add_tokens([_renamed(token, self._names) for token in controls])
        self._ids = {
            self._tokenizer.token_to_id(self._names[t]): i for t, i in self.control_ids.items()
        }
        self._control = _alternatives(self.control_ids)

    def encode(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Token ids of (text, is_content) parts, joined; no token is added around them."""
        text = "".join(part if content else self._rename(part) for part, content in parts)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [self._ids.get(token, token) for token in ids]

    def _rename(self, template: str) -> str:
        if self._control is None:
            return template
        return self._control.sub(lambda found: self._names[found.group()], template)


def _is_control(token: dict[str, Any], template: str) -> bool:
    """Special tokens, and other added tokens that mark up a chat; runs of spaces are neither."""
    text: str = token["content"]
    written = not text.isspace() and text in template
    return bool(token["special"]) or written or _MARKUP.fullmatch(text) is not None


def _renamed(token: dict[str, Any], names: dict[str, str]) -> AddedToken:
    return AddedToken(
        names[token["content"]],
        single_word=False,
        lstrip=token["lstrip"],
        rstrip=token["rstrip"],
        normalized=False,
        special=False,
    )


def _alternatives(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
