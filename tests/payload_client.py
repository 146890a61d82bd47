"""MLflow's real scoring app over a saved model that answers with what it understood."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import mlflow
from mlflow.pyfunc import scoring_server
from starlette.testclient import TestClient

from signature import model_signature

FAKE = Path(__file__).parent / "fakes" / "fake_payload_model.py"


class PayloadClient:
    """Posts payloads to one saved version of the fake payload model."""

    def __init__(self, folder: Path, *, string_columns: bool = False) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow asks for type hints, which DESIGN forbids
            mlflow.pyfunc.save_model(
                folder,
                python_model=str(FAKE),
                signature=model_signature(string_columns),
                model_config={"text_columns": string_columns},
                pip_requirements=["mlflow"],
            )
            self.model = mlflow.pyfunc.load_model(str(folder))
        self._http = TestClient(scoring_server.init(self.model), raise_server_exceptions=False)

    def post(self, body: object) -> tuple[int, Any]:
        """Status and decoded reply of a JSON body."""
        reply = self._http.post(
            "/invocations", content=json.dumps(body), headers={"content-type": "application/json"}
        )
        return reply.status_code, reply.json()

    def post_raw(self, content: bytes, content_type: str) -> tuple[int, Any]:
        """Status and decoded reply of a body in another format."""
        reply = self._http.post(
            "/invocations", content=content, headers={"content-type": content_type}
        )
        return reply.status_code, reply.json()

    def rows(self, body: object) -> list[dict[str, Any]]:
        """What the model understood of a JSON body, one record a row."""
        return understood(self.post(body))


def understood(reply: tuple[int, Any]) -> list[dict[str, Any]]:
    """The echoed requests of a reply; a row error is {"error": ...}."""
    status, decoded = reply
    assert status == 200, decoded
    answers = decoded["predictions"] if isinstance(decoded, dict) else decoded
    return [
        {"error": answer["error"]} if answer["error"] else json.loads(answer["output"])
        for answer in answers
    ]


def last_texts(rows: list[dict[str, Any]]) -> list[str]:
    """Content of each row's last message."""
    return [row["messages"][-1]["content"] for row in rows]
