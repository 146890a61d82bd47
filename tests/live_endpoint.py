"""A local endpoint running as users run it: its own process, a real registry, real HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import requests
from mlflow.models import ModelSignature
from mlflow.tracking import MlflowClient
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType

ROOT = Path(__file__).resolve().parent.parent
FAKE = ROOT / "tests" / "fakes" / "fake_echo_model.py"
START_S = 600.0  # on a busy machine; a quiet one needs seconds
JSON = {"Content-Type": "application/json"}
COLUMNS = (
    *("prompt", "messages", "json_schema", "response_format", "temperature", "max_tokens"),
    *("n", "stop", "top_p", "seed", "logprobs", "enable_thinking"),
)


def fake_signature() -> ModelSignature:
    """The real model's columns, as far as the tests of serving use them."""
    return ModelSignature(
        inputs=Schema([ColSpec(AnyType(), name, required=False) for name in COLUMNS]),
        outputs=Schema([ColSpec(DataType.string, "output")]),
        params=ParamSchema(
            [
                ParamSpec("temperature", DataType.double, 0.1),
                ParamSpec("max_tokens", DataType.long, 512),
                ParamSpec("json_schema", DataType.string, None),
            ]
        ),
    )


def save_fake(folder: Path, label: str = "", *, fail_to_load: bool = False) -> Path:
    """Write the fake model as an MLflow model; the `label` comes back with every answer."""
    mlflow.pyfunc.save_model(
        str(folder),
        python_model=str(FAKE),
        signature=fake_signature(),
        input_example=pd.DataFrame({"prompt": ["hello"]}),
        pip_requirements=["mlflow"],
        model_config={"label": label, "fail_to_load": fail_to_load, "served_deadline_s": None},
    )
    return folder


def register_fakes(folder: Path, name: str) -> str:
    """Versions 1 (label one), 2 (label two) and 3 (does not load) of `name`; returns the URI."""
    uri = f"sqlite:///{folder / 'registry.db'}"
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    client.create_registered_model(name)
    for label in ("one", "two", "broken"):
        source = save_fake(folder / label, label, fail_to_load=label == "broken")
        client.create_model_version(name, str(source))
    return uri


class LiveEndpoint:
    """`python -m serving` on a free port; `stop` ends it as a service manager does."""

    def __init__(self, folder: Path, registry: str, *options: str, **environment: str) -> None:
        self.folder, self.registry, self.options = folder, registry, options
        self.environment = environment
        self.headers: dict[str, str] = {}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> LiveEndpoint:
        """Start it and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "serving", "--port", str(self.port)),
                    *("--state-dir", str(self.folder / "state")),
                    *("--tracking-uri", self.registry, "--registry-uri", self.registry),
                    *self.options,
                ],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )
        wait_for(self.answers, "the local endpoint answers")
        return self

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            return bool(requests.get(f"{self.url}/health", timeout=5).ok)
        except requests.ConnectionError:
            return False

    def log(self) -> str:
        return (self.folder / "server.log").read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait for its end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(START_S)

    def get(self, name: str) -> dict[str, Any]:
        url = f"{self.url}/api/2.0/serving-endpoints/{name}"
        reply = requests.get(url, headers=self.headers, timeout=30)
        reply.raise_for_status()
        return dict(reply.json())

    def put_config(self, name: str, config: Mapping[str, Any]) -> requests.Response:
        url = f"{self.url}/api/2.0/serving-endpoints/{name}/config"
        return requests.put(url, json=config, headers=self.headers, timeout=60)

    def create(self, name: str, **entity: Any) -> requests.Response:
        body = {"name": name, "config": {"served_entities": [entity]}}
        url = f"{self.url}/api/2.0/serving-endpoints"
        return requests.post(url, json=body, headers=self.headers, timeout=60)

    def settled(self, name: str) -> dict[str, Any]:
        """The endpoint once no update is under way."""
        wait_for(
            lambda: self.get(name)["state"]["config_update"] != "IN_PROGRESS", f"{name} has settled"
        )
        return self.get(name)

    def ask(self, name: str, *prompts: str, timeout: float = 120, **more: Any) -> requests.Response:
        body = {"dataframe_records": [{"prompt": prompt} for prompt in prompts], **more}
        url = f"{self.url}/serving-endpoints/{name}/invocations"
        return requests.post(url, json=body, headers=self.headers, timeout=timeout)

    def children(self) -> list[int]:
        """The processes that the server has started and that live."""
        assert self.process is not None
        return [pid for pid in all_processes() if parent_of(pid) == self.process.pid]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = START_S) -> None:
    """Poll until it holds; fail saying what never came."""
    limit = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < limit, f"never happened: {what}"
        time.sleep(0.1)


def all_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def parent_of(pid: int) -> int | None:
    """None when it has ended, zombies included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[1])


def alive(pid: int) -> bool:
    return parent_of(pid) is not None
