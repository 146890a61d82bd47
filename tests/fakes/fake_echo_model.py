"""A FAKE of the registered model: the same columns, no engine, and faults on demand.

It stands in where a test needs many versions or a fault that a real engine cannot be made to
have. A prompt "sleep 0.5" waits, "crash" ends the process, "raise" fails the call, "reject" is a
row error, "env NAME" shows a variable; anything else comes back as it is. In a stream the word
"fault" raises and "slow" takes its time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import mlflow
import pandas as pd


class FakeEchoModel(mlflow.pyfunc.PythonModel):
    def load_context(self, context: Any) -> None:
        settings = context.model_config or {}
        self.label = settings.get("label", "")
        if settings.get("fail_to_load"):
            raise RuntimeError("the fake was told not to load")

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        rows = [self.answer(record) for record in model_input.to_dict("records")]
        return pd.DataFrame(rows, dtype=object)

    def predict_stream(self, context: Any, model_input: Any, params: Any = None) -> Iterator[Any]:
        row = self.answer(dict(model_input))
        for word in (row["output"] or "").split():
            if word == "fault":
                raise ValueError("the fake was told to raise")
            if word == "slow":
                time.sleep(0.2)
            yield {"row": 0, "choice": 0, "delta": f"{word} "}
        yield {"row": 0, **row}

    def answer(self, record: dict[str, Any]) -> dict[str, Any]:
        messages = record.get("messages")
        prompt = str(messages[-1]["content"] if messages else record.get("prompt"))
        command, _, argument = prompt.partition(" ")
        if command == "sleep":
            time.sleep(float(argument))
        if command == "crash":
            os._exit(9)
        if command == "raise":
            raise ValueError("the fake was told to raise")
        if command == "env":
            prompt = os.environ.get(argument, "")
        rejected = command == "reject"
        told = [{"token": w, "logprob": -0.5, "others": {"x": -1.0}} for w in prompt.split()]
        return {
            "output": None if rejected else prompt,
            "finish_reason": "error" if rejected else "stop",
            "error": "INVALID_ROW: the fake was told to reject it" if rejected else None,
            "label": self.label,
            "logprobs": None if record.get("logprobs") is None else json.dumps(told),
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": len(prompt.split()),
        }


mlflow.models.set_model(FakeEchoModel())
