"""Which executor a Spark task runs on."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_START_TIME = 19  # field of /proc/PID/stat after the command's name: ticks since boot
_PARENT = 1


@dataclass(frozen=True)
class Process:
    """A process; its start time tells it from a later one with the same id."""

    pid: int
    started: int

    def alive(self) -> bool:
        try:
            return _stat(self.pid)[_START_TIME] == str(self.started)
        except OSError:
            return False


@dataclass(frozen=True)
class Executor:
    """An executor's JVM, and the GPUs Spark gave to the task (none on CPU)."""

    process: Process
    gpus: tuple[str, ...]


def current_task() -> Any | None:
    """Spark's TaskContext, or None outside a task. Imports no Spark where there is none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import TaskContext

    return TaskContext.get()


def executor_of(task: Any) -> Executor:
    """The executor of a running task: the nearest Java process above this one."""
    gpu = task.resources().get("gpu")
    return Executor(_nearest_java(), tuple(gpu.addresses) if gpu else ())


def _nearest_java() -> Process:
    pid = os.getppid()
    while pid > 1:
        stat = _stat(pid)
        if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "java":
            return Process(pid, int(stat[_START_TIME]))
        pid = int(stat[_PARENT])
    raise RuntimeError("this Spark task has no Java process above it: which executor is it on?")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name, which may itself hold spaces and brackets."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return text.rpartition(")")[2].split()
