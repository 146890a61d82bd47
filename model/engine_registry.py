"""The engines of this process: one for each key, shared by all who ask, ended at exit."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

import yaml

from model.supervisor import Health

Key: TypeAlias = tuple[str, str]

_LOGGED_MODEL = "MLmodel"
_ABOVE_WEIGHTS = 2  # <model>/artifacts/<weights>, next to <model>/MLmodel


class Held(Protocol):
    """What the registry holds."""

    def health(self) -> Health:
        """Whether it still serves."""

    def abandon(self) -> None:
        """Forgets what belongs to the process this one was forked from."""


E = TypeVar("E", bound=Held)


class Registry(Generic[E]):
    """Thread-safe. A fork begins with none: an engine belongs to the process that started it."""

    def __init__(self) -> None:
        self._inherited: list[E] = []
        self._forget_all()
        os.register_at_fork(after_in_child=self._after_fork)

    def _forget_all(self) -> None:
        self._engines: dict[Key, E] = {}
        self._key_locks: dict[Key, threading.Lock] = {}
        self._lock = threading.Lock()
        self._ends_at_exit = False

    def acquire(self, key: Key, start: Callable[[], E], end_all: Callable[[], None]) -> E:
        """The engine for `key`, started if there is none alive. Blocks while it starts."""
        with self._lock:
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            engine = self._engines.get(key)
            if engine is None or not engine.health().alive:
                engine = self._engines[key] = start()
                self._end_at_exit(end_all)
            return engine

    def forget(self, engine: E) -> None:
        """Lets the next `acquire` start another."""
        with self._lock:
            self._engines = {k: e for k, e in self._engines.items() if e is not engine}

    def engines(self) -> list[E]:
        """All that were started and not forgotten."""
        return list(self._engines.values())

    def _end_at_exit(self, end_all: Callable[[], None]) -> None:
        """Before vLLM's own clean-up at exit, and before multiprocessing waits for children."""
        with self._lock:
            if not self._ends_at_exit:
                self._ends_at_exit = True
                atexit.register(end_all)
                Finalize(None, end_all, exitpriority=1000)  # a multiprocessing child has no atexit

    def _after_fork(self) -> None:
        self._inherited += self.engines()
        for engine in self._inherited:
            engine.abandon()
        self._forget_all()


def weights_identity(weights: str) -> str:
    """Equal for equal weights: copies of one logged model share its id, others go by their path."""
    path = Path(weights).resolve()
    if len(path.parents) >= _ABOVE_WEIGHTS:
        logged = path.parents[_ABOVE_WEIGHTS - 1] / _LOGGED_MODEL
        if logged.is_file():
            model_id = (yaml.safe_load(logged.read_text()) or {}).get("model_uuid")
            if model_id:
                return f"{model_id}/{path.name}"
    return str(path)
