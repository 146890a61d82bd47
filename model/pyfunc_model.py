"""The MLflow model: payload in, DataFrame out. The whole flow reads from top to bottom here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pandas as pd
from mlflow.pyfunc import PythonModel

from model.call_errors import as_call_errors
from model.caller import Caller, calling
from model.chat_template import ChatTemplate
from model.config import ModelConfig
from model.metrics import metrics_text
from model.output import to_frame
from model.rows import Rows, parse_rows

if TYPE_CHECKING:
    from model.answers import Answering
    from model.engine import Engine, Health

ARTIFACT = "llm-model"
SERVED_MARK = "__pyfunc_model_path__"  # MLflow's scoring server sets it for its workers


class FormlineModel(PythonModel):
    """Rows of prompts or messages in, one answer or one error a row out.

    Holds nothing that a copy of the process needs: weights and config come from the context.
    """

    config: ModelConfig
    engine: Engine
    answering: Answering

    def load_context(self, context: Any) -> None:
        """Starts the engine, or joins the one that runs here already; seconds to minutes.

        Raises ConfigError for a wrong `model_config`, EngineError when vLLM cannot start.
        """
        from model.answers import Answering  # these import vLLM, which registration need not
        from model.engine import Engine

        self.config = ModelConfig.from_mlflow(context.model_config)
        self.engine = Engine.acquire(context.artifacts[ARTIFACT], self.config)
        template = ChatTemplate.from_config(self.config.chat_template, self.engine.tokenizer)
        self.answering = Answering(self.engine, template, self.config.refusal_marks)

    # The hint is one MLflow makes no signature from; without any it would warn at every load.
    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One record a row, in order; columns as in model.output.OutputRow.

        Raises MlflowException: INVALID_PARAMETER_VALUE for a payload that is wrong as a whole,
        REQUEST_LIMIT_EXCEEDED or TEMPORARILY_UNAVAILABLE when the engine cannot take it.
        """
        with as_call_errors():
            rows = self._rows(model_input, params)
            outputs = self.answering.answer(rows, **self._limits())
            return to_frame(outputs)

    def predict_stream(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yields dicts as tokens come; each names its row. Closing the iterator aborts the rows."""
        with as_call_errors():
            rows = self._rows(model_input, params)
            yield from self.answering.stream(rows, **self._limits())

    def health(self) -> Health:
        """Whether the engine answers now, and whether waiting for it can help."""
        return self.engine.health()

    def _rows(self, model_input: pd.DataFrame, params: dict[str, Any] | None) -> Rows:
        return parse_rows(model_input, params, text_columns=self.config.string_columns)

    def calling(self) -> AbstractContextManager[Caller]:
        """For whoever serves the model: calls made inside end early once the caller `leave`s."""
        return calling()

    def metrics_text(self) -> bytes:
        """All metrics of this process in Prometheus' text format, for whoever serves the model."""
        return metrics_text()

    def _limits(self) -> dict[str, Any]:
        """A call over HTTP has a caller that stops waiting; a batch in a notebook has not."""
        served = SERVED_MARK in os.environ
        return {
            "deadline_s": self.config.served_deadline_s if served else self.config.deadline_s,
            "max_waiting_rows": self.config.max_waiting_rows if served else None,
            "log_content": self.config.log_prompts,
        }
