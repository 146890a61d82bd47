"""Jobs killed with kill -9 at random moments and started again: is every row there, once?"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

POLL_S = 0.02

Start = Callable[[Path], "subprocess.Popen[str]"]


@dataclass
class Kills:
    """What `most` kills found. `parts` has, for each kill, how many parts were finished then."""

    most: int
    parts: list[int] = field(default_factory=list)
    jobs: int = 0
    wrong_rows: int = 0
    unlike: int = 0

    def report(self) -> dict[str, int | list[int]]:
        return {
            "kills": len(self.parts),
            "jobs_killed": self.jobs,
            "parts_at_kills": self.parts,
            "rows_lost_or_doubled": self.wrong_rows,
            "outputs_unlike_an_undisturbed_run": self.unlike,
        }


def kill_and_resume(start: Start, folder: Path, rows: int, kills: int, longest_s: float) -> Kills:
    """Jobs follow each other, each killed 1 to 5 times, until `kills` have hit.

    `start` begins, or goes on with, the job of an output; its ids must be 0 to `rows` - 1. A kill
    comes at most `longest_s` seconds after the job began to work: about as long as it takes.
    """
    reference = _undisturbed(start, folder / "calm.parquet")
    found = Kills(kills)
    moment = random.Random(0)
    while len(found.parts) < kills:
        output = folder / f"killed-{found.jobs}.parquet"
        _run_with_kills(start, output, found, moment, longest_s)
        table = pq.read_table(output)
        found.jobs += 1
        found.wrong_rows += wrong_rows(table["id"].to_pylist(), rows)
        found.unlike += not table.equals(reference)
        print(f"{len(found.parts)} kills, {found.jobs} jobs, {found.wrong_rows} rows wrong")
    return found


def _undisturbed(start: Start, output: Path) -> object:
    _end(start(output))
    return pq.read_table(output)


def _run_with_kills(
    start: Start, output: Path, found: Kills, moment: random.Random, longest_s: float
) -> None:
    """One job, killed up to 5 times and then left to end."""
    work = output.parent / f".{output.name}.formline"
    most = min(found.most, len(found.parts) + moment.randint(1, 5))
    while (work / "job.json").exists() or not output.exists():
        process = start(output)
        if len(found.parts) < most and _killed(process, work, moment.uniform(0, longest_s)):
            found.parts.append(len(list(work.glob("parts/*/*.arrow"))))
        else:
            _end(process)


def _killed(process: subprocess.Popen[str], work: Path, after_s: float) -> bool:
    """Whether the kill, `after_s` seconds after the work began, met the process alive."""
    started = time.time()
    while process.poll() is None and not _at_work(work, started):
        time.sleep(POLL_S)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return process.returncode < 0


def _at_work(work: Path, started: float) -> bool:
    """Whether the process that started then has come to the rows: each run makes this file anew."""
    made = work / "owners.sqlite"
    return made.exists() and made.stat().st_mtime > started


def _end(process: subprocess.Popen[str]) -> None:
    process.communicate()
    if process.returncode:
        raise SystemExit(f"a job ended with {process.returncode}")


def wrong_rows(ids: list[int], rows: int) -> int:
    """How many of the ids 0 to `rows` - 1 are missing, doubled or not in their place."""
    counts = Counter(ids)
    doubled_or_lost = sum(abs(counts.pop(i, 0) - 1) for i in range(rows)) + counts.total()
    return doubled_or_lost or sum(i != place for place, i in enumerate(ids))
