"""Load a version as a served model: it knows that it is served, and how long its calls may take."""

from __future__ import annotations

import json
import os

from mlflow.environment_variables import MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT
from mlflow.pyfunc import PyFuncModel
from mlflow.pyfunc.scoring_server import (
    _SERVER_MODEL_PATH,
    SERVING_MODEL_CONFIG,
    load_model_with_mlflow_config,
)

ANSWER_S = 5.0


def load_served(model_uri: str, execution_s: float) -> PyFuncModel:
    """The loaded model. Sets this process' environment as MLflow's own servers do.

    The model's own limit comes just before the server's: finished rows still get back. A
    `SERVING_MODEL_CONFIG` that is set already wins.
    """
    deadline = {"served_deadline_s": max(execution_s - ANSWER_S, execution_s / 2)}
    os.environ[MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT.name] = str(int(execution_s))
    os.environ[_SERVER_MODEL_PATH] = model_uri
    os.environ.setdefault(SERVING_MODEL_CONFIG, json.dumps(deadline))
    return load_model_with_mlflow_config(model_uri)
