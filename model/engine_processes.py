"""The operating system's processes behind the engines of this process, and their end."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection
from multiprocessing.shared_memory import SharedMemory

import psutil

_NAME = "EngineCore"
_END_WITHIN_S = 10.0
_SEGMENT = "/dev/shm/psm_"  # noqa: S108 (what Python names the shared memory that it makes)

_claimed: dict[psutil.Process, set[str]] = {}  # each process's shared memory, by name


def claim() -> set[psutil.Process]:
    """The processes of the engine just built, with all that they started; each is claimed once."""
    found = unclaimed()
    _claimed.update({process: _segments(process) for process in found})
    return found


def unclaimed() -> set[psutil.Process]:
    """The processes of an engine that is being built now."""
    found: set[psutil.Process] = set()
    for child in multiprocessing.active_children():
        if child.name.startswith(_NAME) and child.pid is not None:
            found |= _family(child.pid)
    return found - _claimed.keys()


def end(processes: Collection[psutil.Process]) -> None:
    """Kills those that still run, waits until their memory is free again, and frees what they
    shared: vLLM's processes are killed before they have removed it, also in its own shutdown."""
    running = [process for process in processes if process.is_running()]
    segments = set().union(*(_claimed.pop(process, set()) for process in processes))
    segments.update(*(_segments(process) for process in running))
    for process in running:
        _kill(process)
    psutil.wait_procs(running, timeout=_END_WITHIN_S)
    for name in segments:
        _remove(name)


def _family(pid: int) -> set[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return {parent, *parent.children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def _segments(process: psutil.Process) -> set[str]:
    """Only the engine's own processes have them open."""
    try:
        paths = [file.path for file in process.open_files()]
    except psutil.Error:
        return set()
    return {path.rpartition("/")[2] for path in paths if path.startswith(_SEGMENT)}


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return  # it ended by itself in the meantime


def _remove(name: str) -> None:
    try:
        segment = SharedMemory(name)
    except FileNotFoundError:
        return  # its maker has removed it
    segment.close()
    segment.unlink()
