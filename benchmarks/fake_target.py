"""A fake of the model, for scale and for faults only: no engine, answers made of the prompt.

It makes a million rows and random kills affordable; real answers are tested elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa

from scoring.answers import ANSWER_SCHEMA, answer_batch

FAILS = "fail"


def fake_answer(prompt: str | None) -> dict[str, Any]:
    """Always the same for the same prompt; an error for prompts that start with "fail"."""
    if prompt is None or prompt.startswith(FAILS):
        return {"error": "INVALID_ROW: fake", "finish_reason": "error"}
    digest = hashlib.blake2b(prompt.encode(), digest_size=4).hexdigest()
    return {
        "output": json.dumps({"digest": digest, "length": len(prompt)}),
        "finish_reason": "stop",
        "prompt_tokens": len(prompt),
        "completion_tokens": 8,
        "logprob": -0.5,
    }


class FakeTarget:
    """Answers at once, or after `seconds` a call; keeps in `asked` what it was asked, if wanted."""

    request_columns = ("prompt", "messages", "system_prompt", "temperature")
    answer_schema = ANSWER_SCHEMA

    def __init__(
        self,
        answer: Callable[[str | None], dict[str, Any]] = fake_answer,
        *,
        version: str = "1",
        seconds: float = 0.0,
        chunks_at_once: int = 2,
        remember: bool = True,
    ) -> None:
        self.chunks_at_once, self._remember = chunks_at_once, remember
        self.asked: list[str | None] = []
        self._answer, self._version, self._seconds = answer, version, seconds

    def identity(self) -> dict[str, Any]:
        return {"model": f"fake/{self._version}"}

    def start(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to end."""

    def answer(self, requests: pd.DataFrame) -> pa.RecordBatch:
        if self._seconds:
            time.sleep(self._seconds)
        prompts = requests["prompt"].tolist()
        if self._remember:
            self.asked.extend(prompts)
        return answer_batch([self._answer(prompt) for prompt in prompts], self.answer_schema)
