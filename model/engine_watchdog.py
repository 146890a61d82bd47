"""Tells an engine that hangs from one that computes.

Two signs, both free of false alarms:
- vLLM's main process is asked a question that it answers between two steps. vLLM itself ends a
  step after VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS, so whoever is silent for longer than that and the
  `timeout_s` is in no step: neither a long prefill nor a compilation.
- A process that is stopped (SIGSTOP) is in no step either, and needs no longer than `timeout_s`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

_ASK_EVERY_S = 2.0
_LONGEST_LOOK_S = 1.0


class Watchdog:
    """Watches one engine at a time, on its event loop. `timeout_s` None: never says it hangs."""

    def __init__(
        self, timeout_s: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout_s, self._clock = timeout_s, clock
        self._now = self._looked_at = 0.0
        self._question: asyncio.Task[bool] | None = None
        self._asked_at = self._running_at = 0.0

    def reset(self) -> None:
        """Forgets what is known: the next look is the first at a new engine."""
        if self._question is not None:
            self._question.cancel()
            self._question = None
        self._now, self._looked_at = 0.0, self._clock()
        self._asked_at = self._running_at = 0.0

    def look(self, llm: AsyncLLM, processes: Iterable[psutil.Process]) -> str | None:
        """Why the engine counts as hung, if it does. To be called several times a second."""
        if self._timeout_s is None:
            return None
        self._pass_time()
        return self._stopped(processes, self._timeout_s) or self._silent(llm, self._timeout_s)

    def _pass_time(self) -> None:
        """Counts time in which this process itself ran, and could have heard an answer."""
        looked_at, self._looked_at = self._looked_at, self._clock()
        self._now += min(self._looked_at - looked_at, _LONGEST_LOOK_S)

    def _stopped(self, processes: Iterable[psutil.Process], timeout_s: float) -> str | None:
        stopped = next((p for p in processes if _is_stopped(p)), None)
        if stopped is None:
            self._running_at = self._now
        elif self._now - self._running_at > timeout_s:
            return f"process {stopped.pid} has been stopped for {timeout_s:g} s"
        return None

    def _silent(self, llm: AsyncLLM, timeout_s: float) -> str | None:
        if self._question is None:
            if self._now - self._asked_at >= _ASK_EVERY_S:
                self._question = asyncio.create_task(llm.is_paused())
                self._asked_at = self._now
        elif self._question.done():
            if not self._question.cancelled():
                self._question.exception()  # an engine that cannot be asked is dead, which shows
            self._question = None
        elif self._now - self._asked_at > (limit_s := longest_step_s() + timeout_s):
            return f"it has not answered for {limit_s:g} s"
        return None


def longest_step_s() -> float:
    """After which vLLM gives up a step by itself."""
    from vllm import envs

    return float(envs.VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS)


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False
