"""Ten minutes of everything at once: mixed calls, disconnects, bad rows, and engines that end.

    python -m benchmarks.soak [--minutes 10] [--clients 8] [--kill-every 120]

Clients call the served model over HTTP and directly. Every row they send must come back with an
answer or a reason, be refused with its whole call (429, 503), or have been left by its caller; and
memory must not grow. Prints progress, and JSON as the last line; exits with 1 when either fails.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pandas as pd
import psutil

from benchmarks.serving import ENGINE_ARGS, WEIGHTS, Subject

GRADE = json.dumps(
    {
        "type": "object",
        "properties": {"grade": {"enum": ["yes", "no"]}, "points": {"type": "integer"}},
        "required": ["grade", "points"],
    }
)
UNSUPPORTED = json.dumps({"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}})
TOO_LONG = "word " * 20_000
MEMORY_GROWTH = 1.10
WARM_PART, LAST_PART = 0.3, 0.7
SAMPLE_EVERY_S = 2.0


class Ledger:
    """What became of every row sent. Thread-safe."""

    def __init__(self) -> None:
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def send(self, rows: int) -> None:
        """Counts rows before they go out."""
        with self._lock:
            self.sent += rows

    def close(self, outcome: str, rows: int = 1) -> None:
        """Counts what became of rows."""
        with self._lock:
            self.outcomes[outcome] += rows

    def records(self, records: list[dict[str, Any]], rows: int) -> None:
        """Counts a reply; a record must hold an answer or a reason, and none may be missing."""
        for record in records:
            if record.get("output") is None and not record.get("error"):
                self.fault(f"neither answer nor reason: {record}")
            self.close("error" if record.get("error") else "answer")
        if len(records) != rows:
            self.fault(f"{len(records)} records for {rows} rows")

    def fault(self, text: str) -> None:
        """Something that must not happen."""
        with self._lock:
            self.faults.append(text)

    @property
    def accounted(self) -> bool:
        """Whether every row sent has exactly one outcome, and nothing impossible happened."""
        return self.sent == sum(self.outcomes.values()) and not self.faults


class Client:
    """One client: random calls, one after the other, until told to stop."""

    def __init__(self, subject: Subject, url: str, ledger: Ledger, seed: int) -> None:
        self._subject, self._url, self._ledger = subject, url, ledger
        self._random = random.Random(seed)
        self._calls: list[Callable[[], None]] = [
            self._batch,
            self._batch,
            self._stream_to_the_end,
            self._leave_a_stream,
            self._hang_up,
        ]

    def run(self, stop: threading.Event) -> None:
        """Calls until `stop` is set."""
        while not stop.is_set():
            self._random.choice(self._calls)()

    def _rows(self) -> list[dict[str, Any]]:
        return [self._row() for _ in range(self._random.randint(1, 8))]

    def _row(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "prompt": f"Question {self._random.random()}",
            "max_tokens": self._random.choice([1, 8, 32]),
        }
        kind = self._random.random()
        if kind < 0.3:
            row["json_schema"] = GRADE
        elif kind < 0.4:
            row["json_schema"] = UNSUPPORTED
        elif kind < 0.45:
            row["prompt"] = TOO_LONG
        return row

    def _batch(self) -> None:
        rows = self._rows()
        self._ledger.send(len(rows))
        payload = {"dataframe_records": rows}
        reply = httpx.post(f"{self._url}/invocations", json=payload, timeout=600)
        if reply.status_code == 200:
            self._ledger.records(reply.json()["predictions"], len(rows))
        elif reply.status_code in (429, 503, 504):
            self._ledger.close(f"refused with {reply.status_code}", len(rows))
            time.sleep(1)
        else:
            self._ledger.close(f"status {reply.status_code}", len(rows))
            self._ledger.fault(reply.text[:300])

    def _stream_to_the_end(self) -> None:
        rows = self._rows()
        self._stream(rows, leave_after=None)

    def _leave_a_stream(self) -> None:
        self._stream(self._rows(), leave_after=self._random.randint(1, 5))

    def _stream(self, rows: list[dict[str, Any]], leave_after: int | None) -> None:
        from mlflow.exceptions import MlflowException

        self._ledger.send(len(rows))
        ended = 0
        # MLflow's own predict_stream takes one row at a time
        pieces = self._subject.python_model.predict_stream(None, pd.DataFrame(rows))
        try:
            for number, piece in enumerate(pieces):
                ended += _is_last(piece)
                if number + 1 == leave_after:
                    break
        except MlflowException:
            self._ledger.close("refused", len(rows) - ended)
            rows = rows[:ended]
        finally:
            pieces.close()
        self._ledger.close("streamed", ended)
        self._ledger.close("left", len(rows) - ended)
        if leave_after is None and ended != len(rows):
            self._ledger.fault(f"a stream ended after {ended} of {len(rows)} rows")

    def _hang_up(self) -> None:
        rows = self._rows()
        self._ledger.send(len(rows))
        try:
            httpx.post(f"{self._url}/invocations", json={"dataframe_records": rows}, timeout=0.3)
        except httpx.TimeoutException:
            self._ledger.close("left", len(rows))
        else:
            self._ledger.close("answer", len(rows))


def _is_last(piece: dict[str, Any]) -> bool:
    """Whether a streamed piece carries its row's whole outcome."""
    return "output" in piece


def end_engines(every_s: float, stop: threading.Event) -> None:
    """Kills the engine process, or stops it so that it hangs, by turns."""
    turns = itertools.cycle([signal.SIGKILL, signal.SIGSTOP])
    while not stop.wait(every_s):
        for process in psutil.Process().children():
            if "EngineCore" in process.name():
                turn = next(turns)
                process.send_signal(turn)
                print(json.dumps({turn.name: process.pid}), flush=True)


def watch_memory(stop: threading.Event, samples: list[int], ledger: Ledger) -> None:
    """Samples this process's resident memory (bytes)."""
    this = psutil.Process()
    while not stop.wait(SAMPLE_EVERY_S):
        samples.append(this.memory_info().rss)
        if len(samples) % 15 == 0:
            progress = {"rss_mib": samples[-1] >> 20, "sent": ledger.sent, **ledger.outcomes}
            print(json.dumps(progress), flush=True)


def growth(samples: list[int]) -> float:
    """Median memory at the end against the median after warming up."""
    count = len(samples)
    early = samples[int(count * WARM_PART) : int(count * 0.5)]
    late = samples[int(count * LAST_PART) :]
    return statistics.median(late) / statistics.median(early) if early and late else 1.0


def soak(subject: Subject, minutes: float, clients: int, kill_every_s: float) -> dict[str, Any]:
    """Runs everything, waits for the last rows, and reports."""
    ledger, stop, samples = Ledger(), threading.Event(), list[int]()
    with subject.serving() as url:
        threads = [
            threading.Thread(target=Client(subject, url, ledger, seed).run, args=(stop,))
            for seed in range(clients)
        ]
        threads += [
            threading.Thread(target=end_engines, args=(kill_every_s, stop)),
            threading.Thread(target=watch_memory, args=(stop, samples, ledger)),
        ]
        for thread in threads:
            thread.start()
        time.sleep(minutes * 60)
        stop.set()
        for thread in threads:
            thread.join()
    engine = subject.python_model.engine
    return {
        "sent": ledger.sent,
        "outcomes": dict(ledger.outcomes),
        "faults": ledger.faults[:10],
        "accounted": ledger.accounted,
        "memory_growth": growth(samples),
        "rebuilds": engine.health().rebuilds,
        "left_in_window": engine._window.in_flight,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kill-every", type=float, default=120.0, help="seconds")
    arguments = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        os.chdir(folder)
        from register import register_model

        registered = register_model(
            str(WEIGHTS), "soak", engine_args=ENGINE_ARGS, settings={"hang_timeout_s": 10.0}
        )
        report = soak(
            Subject(registered.uri), arguments.minutes, arguments.clients, arguments.kill_every
        )
    print(json.dumps(report))
    sys.exit(0 if report["accounted"] and report["memory_growth"] < MEMORY_GROWTH else 1)


if __name__ == "__main__":
    main()
