"""A FAKE of the registered model: the real payload path, but a row's answer is its own request.

It stands in where hundreds of payloads are tried, each of which the engine would answer slowly
and with a text that says nothing about what was understood.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from model.call_errors import as_call_errors
from model.errors import RowError
from model.output import OutputRow, to_error, to_frame
from model.rows import RequestRow, parse_rows


class FakePayloadModel(PythonModel):
    def load_context(self, context: Any) -> None:
        self.text_columns = bool((context.model_config or {}).get("text_columns"))

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        with as_call_errors():
            rows = parse_rows(model_input, params, text_columns=self.text_columns)
            return to_frame([_echo(item) for item in rows])


def _echo(item: RequestRow | RowError) -> OutputRow:
    if isinstance(item, RowError):
        return to_error(item)
    return OutputRow(output=json.dumps(_described(item)), finish_reason="stop")


def _described(row: RequestRow) -> dict[str, Any]:
    return {
        "index": row.index,
        "messages": [asdict(message) for message in row.messages],
        "fields": row.fields.model_dump(mode="json"),
        "constraint": asdict(row.constraint) if row.constraint else None,
    }


set_model(FakePayloadModel())
