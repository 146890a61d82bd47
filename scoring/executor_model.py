"""A model version in a Spark worker: its files fetched once an executor, loaded once a worker."""

from __future__ import annotations

import fcntl
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import mlflow
from pyspark import SparkFiles


@cache
def load_once(model_uri: str, tracking_uri: str, registry_uri: str) -> Any:
    """The loaded model; Spark uses a worker for many tasks, and this lasts as long as it does."""
    mlflow.set_tracking_uri(tracking_uri)
    mlflow.set_registry_uri(registry_uri)
    return mlflow.pyfunc.load_model(_fetched(model_uri))


def _fetched(model_uri: str) -> str:
    """A local folder of the version. Workers of the executor wait for the one that fetches it."""
    name = hashlib.blake2b(model_uri.encode(), digest_size=8).hexdigest()
    note = (
        Path(SparkFiles.getRootDirectory()) / f"formline-{name}"
    )  # the executor's own, gone with it
    handle = os.open(note, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        folder = stream.read()
        if not folder:
            folder = str(mlflow.artifacts.download_artifacts(artifact_uri=model_uri))
            stream.write(folder)
    return folder
