"""score.py's pipeline at scale, with a fake engine: memory, overhead a row, kills.

    python -m benchmarks.scale [--rows 1000000] [--kills 20]

Memory: the peak of a process that scores many rows against that of one that scores 10,000.
Overhead: wall time a row when answers cost nothing. Kills: kill -9 at random moments and resume,
until the job is done; the output must equal an undisturbed run's, every row once. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fake_target import FakeTarget
from benchmarks.kills import kill_and_resume
from scoring.job import Job
from scoring.run import Options, score

FEW = 10_000
KILL_ROWS = 20_000
KILL_CHUNK = 200
KILL_SECONDS_A_CHUNK = 0.05
BLOCK = 10_000


def make_input(path: Path, rows: int) -> None:
    """Prompts of about 60 characters; every tenth equals an earlier one, some fail."""
    schema = pa.schema([("id", pa.int64()), ("prompt", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, BLOCK):
            ids = range(start, min(start + BLOCK, rows))
            columns = {"id": list(ids), "prompt": [_prompt(i) for i in ids]}
            writer.write_table(pa.table(columns, schema))


def _prompt(i: int) -> str:
    if i % 1_009 == 7:
        return f"fail {i}"
    return f"Which of the topics fits document number {i // 2 if i % 10 == 9 else i}?"


def work(source: str, output: str, seconds: float, chunk_rows: int) -> None:
    """One process's job; prints its peak memory and time."""
    started = time.monotonic()
    job = Job(model="models:/fake/1", params={"temperature": 0}, chunk_rows=chunk_rows)
    target = FakeTarget(seconds=seconds, remember=False)
    result = score(source, output, job=job, target=target, options=Options(track=False, quiet=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {"seconds": time.monotonic() - started, "peak_mib": peak}
    print(json.dumps({**figures, "rows": result.totals.rows, "copied": result.totals.copied}))


def start(source: Path, output: Path, seconds: float, chunk_rows: int) -> subprocess.Popen[str]:
    call = [sys.executable, "-m", "benchmarks.scale", "--work", str(source), str(output)]
    details = ["--seconds", str(seconds), "--chunk-rows", str(chunk_rows)]
    return subprocess.Popen([*call, *details], stdout=subprocess.PIPE, text=True)


def figures_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a job ended with {process.returncode}")
    return dict(json.loads(text.splitlines()[-1]))


def at_scale(folder: Path, rows: int, chunk_rows: int) -> dict[str, float]:
    """Peak memory and time for few rows and for many."""
    found = {}
    for name, count in (("few", FEW), ("many", rows)):
        source = folder / f"{name}.parquet"
        make_input(source, count)
        found[name] = figures_of(start(source, folder / f"{name}-out.parquet", 0, chunk_rows))
        print(f"{count:,} rows: {found[name]['seconds']:.1f} s, {found[name]['peak_mib']:.0f} MiB")
    check_rows(folder / "many-out.parquet", rows)
    few, many = found["few"], found["many"]
    extra = many["seconds"] - few["seconds"]
    return {
        "rows": rows,
        "peak_mib": round(many["peak_mib"], 1),
        "peak_ratio": round(many["peak_mib"] / few["peak_mib"], 3),
        "overhead_us_per_row": round(1e6 * extra / max(rows - FEW, 1), 1),
        "copied": many["copied"],
    }


def check_rows(path: Path, rows: int) -> None:
    """Every id once and in order, in bounded memory."""
    expected = 0
    for batch in pq.ParquetFile(path).iter_batches(columns=["id"]):
        ids = batch.column("id").to_pylist()
        if ids != list(range(expected, expected + len(ids))):
            raise SystemExit(f"{path.name}: rows lost, doubled or out of order near {expected}")
        expected += len(ids)
    if expected != rows:
        raise SystemExit(f"{path.name}: {expected} rows, not {rows}")


def killed(folder: Path, kills: int) -> dict[str, Any]:
    source = folder / "kills.parquet"
    make_input(source, KILL_ROWS)

    def begin(output: Path) -> subprocess.Popen[str]:
        return start(source, output, KILL_SECONDS_A_CHUNK, KILL_CHUNK)

    longest_s = KILL_ROWS / KILL_CHUNK * KILL_SECONDS_A_CHUNK / FakeTarget().chunks_at_once
    return kill_and_resume(begin, folder, KILL_ROWS, kills, longest_s).report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--work", nargs=2, metavar=("INPUT", "OUTPUT"), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--chunk-rows", type=int, default=256)
    given = parser.parse_args()
    if given.work:
        source, output = given.work
        work(source, output, given.seconds, given.chunk_rows)
        return
    with tempfile.TemporaryDirectory(prefix="formline-scale-") as scratch:
        folder = Path(scratch)
        figures = {**at_scale(folder, given.rows, given.chunk_rows), **killed(folder, given.kills)}
    print(json.dumps({"benchmark": "scale", **figures}))
    if figures["rows_lost_or_doubled"] or figures["outputs_unlike_an_undisturbed_run"]:
        raise SystemExit("rows were lost or doubled, or differ from an undisturbed run's")


if __name__ == "__main__":
    main()
