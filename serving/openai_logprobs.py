"""A row's log probabilities in OpenAI's two shapes.

A row has them as JSON, one object a token: {"token", "logprob", "others": {token: logprob}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


def chat_logprobs(row: Row, count: int) -> dict[str, Any] | None:
    """For a chat: each token with the `count` likeliest. None when the row has none.

    `bytes` is null: a token's text is all that a row keeps.
    """
    tokens = _tokens(row)
    if tokens is None:
        return None
    content = [
        {**_entry(t["token"], t["logprob"]), "top_logprobs": [_entry(*p) for p in _top(t, count)]}
        for t in tokens
    ]
    return {"content": content, "refusal": None}


def text_logprobs(row: Row, count: int) -> dict[str, Any] | None:
    """For a text completion: parallel lists. None when the row has none."""
    tokens = _tokens(row)
    if tokens is None:
        return None
    texts = [str(token["token"]) for token in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [dict(_top(token, count)) for token in tokens],
        "text_offset": [sum(map(len, texts[:at])) for at in range(len(texts))],
    }


def _tokens(row: Row) -> list[dict[str, Any]] | None:
    text = row.get("logprobs")
    return json.loads(text) if text else None


def _top(token: Mapping[str, Any], count: int) -> list[tuple[str, float]]:
    """The likeliest first, the chosen one among them if it is one of those."""
    ranked = {**token["others"], token["token"]: token["logprob"]}
    return sorted(ranked.items(), key=lambda pair: -pair[1])[:count]


def _entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": None}
