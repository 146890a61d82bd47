"""A FAKE of the registered model: the same columns, no engine, and faults on demand.

It stands in where a test needs many versions or a fault that a real engine cannot be made to
have. A prompt "sleep 0.5" waits, "crash" ends the process, "raise" fails the call, "stop N"
streams N pieces; anything else comes back as it is.
"""

from __future__ import annotations

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
        for word in str(model_input["prompt"]).split():
            if word == "raise":
                raise ValueError("the fake was told to raise")
            time.sleep(0.01)
            yield {"output": word, "label": self.label}

    def answer(self, record: dict[str, Any]) -> dict[str, Any]:
        prompt = str(record.get("prompt"))
        command, _, argument = prompt.partition(" ")
        if command == "sleep":
            time.sleep(float(argument))
        if command == "crash":
            os._exit(9)
        if command == "raise":
            raise ValueError("the fake was told to raise")
        if command == "env":
            prompt = os.environ.get(argument, "")
        return {
            "output": prompt,
            "finish_reason": "stop",
            "error": None,
            "label": self.label,
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": len(prompt.split()),
        }


mlflow.models.set_model(FakeEchoModel())
