"""The operating system's processes behind the engines of this process, and their end."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable

import psutil

_NAME = "EngineCore"
_END_WITHIN_S = 10.0

_claimed: set[psutil.Process] = set()


def claim() -> set[psutil.Process]:
    """The processes of the engine just built, with all that they started; each is claimed once."""
    found = unclaimed()
    _claimed.update(found)
    return found


def unclaimed() -> set[psutil.Process]:
    """The processes of an engine that is being built now."""
    found: set[psutil.Process] = set()
    for child in multiprocessing.active_children():
        if child.name.startswith(_NAME) and child.pid is not None:
            found |= _family(child.pid)
    return found - _claimed


def end(processes: Iterable[psutil.Process]) -> None:
    """Kills those that still run, and waits until their memory is free again."""
    running = [process for process in processes if process.is_running()]
    for process in running:
        _kill(process)
    psutil.wait_procs(running, timeout=_END_WITHIN_S)
    _claimed.difference_update(processes)


def _family(pid: int) -> set[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return {parent, *parent.children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return  # it ended by itself in the meantime
