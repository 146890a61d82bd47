"""Judges cases in child processes, because native code can neither be timed out nor trusted.

A child that takes too long or dies costs its one case and is replaced. Time is the child's own on
the CPU, so that a busy machine changes no verdict.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal

import psutil

from benchmarks.data import Case, spellings
from benchmarks.peers import Peer, Refused

_MEMORY = 6 << 30  # bytes a child may allocate
_fork = multiprocessing.get_context("fork")  # children share the peer that the parent made ready

Status = Literal["judged", "refused", "timeout", "crashed"]


@dataclass
class Verdict:
    """What became of a case: for each spelling of each instance (text, valid, accepted)."""

    status: Status
    reason: str = ""
    keyword: str = ""
    compile_s: float = 0.0
    texts: list[tuple[str, bool, bool]] = field(default_factory=list)


@dataclass
class _Child:
    process: BaseProcess
    pipe: Connection
    case: int | None = None
    limit_s: float = 0.0
    deadline: float = 0.0  # when to look at its CPU time again
    used_s: float = 0.0  # its CPU time when the limit began


def judge_all(
    peer: Peer,
    cases: Sequence[Case],
    *,
    processes: int,
    compile_limit_s: float,
    judge_limit_s: float,
) -> Iterator[tuple[int, Verdict]]:
    """Yields (position, Verdict) for every case as it is done, in any order."""
    waiting = iter(range(len(cases)))
    children = [_start(peer, cases) for _ in range(processes)]
    try:
        for child in children:
            _give(child, next(waiting, None), compile_limit_s)
        while busy := [child for child in children if child.case is not None]:
            first = min(child.deadline for child in busy)
            wait([child.pipe for child in busy], timeout=max(0.0, first - time.monotonic()))
            for child in busy:
                verdict = _hear(child, judge_limit_s)
                if verdict is None or child.case is None:
                    continue
                yield child.case, verdict
                if verdict.status in ("timeout", "crashed"):
                    _stop(child)
                    fresh = _start(peer, cases)
                    child.process, child.pipe = fresh.process, fresh.pipe
                _give(child, next(waiting, None), compile_limit_s)
    finally:
        for child in children:
            _stop(child)


def _start(peer: Peer, cases: Sequence[Case]) -> _Child:
    mine, theirs = _fork.Pipe()
    process = _fork.Process(target=_serve, args=(theirs, peer, cases), daemon=True)
    process.start()
    theirs.close()
    return _Child(process, mine)


def _stop(child: _Child) -> None:
    child.process.kill()
    child.process.join()
    child.pipe.close()


def _give(child: _Child, case: int | None, limit_s: float) -> None:
    child.case = case
    if case is not None:
        _allow(child, limit_s)
        child.pipe.send(case)


def _allow(child: _Child, limit_s: float) -> None:
    child.limit_s = limit_s
    child.used_s = _cpu_s(child)
    child.deadline = time.monotonic() + limit_s


def _is_late(child: _Child) -> bool:
    """Looks at the CPU time when the deadline has come, and puts the deadline off if it may."""
    now = time.monotonic()
    if now < child.deadline:
        return False
    left = child.limit_s - (_cpu_s(child) - child.used_s)
    if left > 0:
        child.deadline = now + left
    return left <= 0


def _cpu_s(child: _Child) -> float:
    try:
        times = psutil.Process(child.process.pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _hear(child: _Child, judge_limit_s: float) -> Verdict | None:
    """The child's verdict, one in its stead if it is late or dead, or None while it works."""
    try:
        if child.pipe.poll():
            heard = child.pipe.recv()
            if isinstance(heard, Verdict):
                return heard
            _allow(child, judge_limit_s)
            return None
    except (EOFError, ConnectionResetError):
        child.process.join()
        return Verdict("crashed", f"the process ended with code {child.process.exitcode}")
    return Verdict("timeout") if _is_late(child) else None


def _serve(pipe: Connection, peer: Peer, cases: Sequence[Case]) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    while True:
        pipe.send(_judge(pipe, peer, cases[pipe.recv()]))


def _judge(pipe: Connection, peer: Peer, case: Case) -> Verdict:
    started = time.perf_counter()
    try:
        grammar = peer.compile(case.schema)
    except Refused as refusal:
        return Verdict("refused", str(refusal), refusal.keyword, time.perf_counter() - started)
    except Exception as error:  # noqa: BLE001 (an engine's fault is a finding, not ours to die of)
        return Verdict("crashed", f"compile: {type(error).__name__}: {error}")
    verdict = Verdict("judged", compile_s=time.perf_counter() - started)
    pipe.send("compiled")
    try:
        for instance in case.instances:
            for text in spellings(instance):
                verdict.texts.append((text, instance.valid, grammar.accepts(text)))
    except Exception as error:  # noqa: BLE001
        return Verdict("crashed", f"judging: {type(error).__name__}: {error}")
    return verdict
