"""How much of raw vLLM's speed a caller of the model gets, in one batch and over HTTP.

    python -m benchmarks.serving [--rows 64 512] [--tokens 32] [--rounds 5] [--startups 2]

Everything takes turns in every round, and medians over the rounds are compared:
  predict     `pyfunc.predict` of N rows          against  raw vLLM on the same token ids
  http        16 clients x 4 rows over HTTP       against  one batch of 64 rows through predict
  locked      the same 16 calls, one LLM, a lock  against  http
  start       load_model to the first answer      against  raw vLLM's, each in a new process
Prints a table, and JSON as the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.raw_vllm import MARK, ROOT, RawVllm

CLIENTS, ROWS_A_CLIENT = 16, 4
BATCH = CLIENTS * ROWS_A_CLIENT
WEIGHTS = ROOT / ".cache" / "smollm2-135m-instruct"
ENGINE_ARGS = {
    "max_model_len": 2048,
    "max_num_seqs": 64,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 1 << 30,
    "enable_prefix_caching": True,
    "dtype": "float32",
    "seed": 0,
}
SYSTEM = "You answer questions about cities. Be short, be exact, and name your source. " * 8
TARGETS = {"predict_64": 0.97, "predict_512": 0.97, "http": 0.90, "http_over_locked": 6.0}


def prompts(rows: int, round_: int) -> list[str]:
    """Different in every row and round, so that only the system prompt is shared."""
    return [
        f"Round {round_}, question {row}: what is city number {row} like?" for row in range(rows)
    ]


def params(tokens: int) -> dict[str, Any]:
    """Greedy, and all rows equally long."""
    return {
        "temperature": 0.0,
        "max_tokens": tokens,
        "ignore_eos": True,
        "system_prompt": SYSTEM,
    }


class Subject:
    """The registered model, loaded once; called directly and over HTTP."""

    def __init__(self, uri: str) -> None:
        self.pyfunc = mlflow.pyfunc.load_model(uri)
        self.python_model = self.pyfunc.unwrap_python_model()

    def token_ids(self, texts: list[str], tokens: int) -> list[list[int]]:
        """What `predict` renders for these prompts."""
        from model.rows import parse_rows

        rows = parse_rows(pd.DataFrame({"prompt": texts}), params(tokens))
        template = self.python_model.answering._template
        return [template.render(row) for row in rows]

    def predict(self, texts: list[str], tokens: int) -> dict[str, float]:
        """One direct call."""
        frame = pd.DataFrame({"prompt": texts})
        began = time.perf_counter()
        answers = self.pyfunc.predict(frame, params=params(tokens))
        return {
            "seconds": time.perf_counter() - began,
            "tokens": _tokens(answers.to_dict("records")),
        }

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The same loaded model behind HTTP; yields its address."""
        import uvicorn

        from serving.scoring_app import build_scoring_app

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        app = build_scoring_app(self.pyfunc)
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join()


def over_http(url: str, calls: list[list[str]], tokens: int) -> dict[str, float]:
    """All calls at once, each from a client of its own."""
    payloads = [
        {"dataframe_records": [{"prompt": text} for text in call], "params": params(tokens)}
        for call in calls
    ]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.clients", url],
        input=json.dumps(payloads),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    result = json.loads(done.stdout)
    records = [record for reply in result["replies"] for record in reply["predictions"]]
    return {"seconds": result["seconds"], "tokens": _tokens(records)}


def _tokens(records: list[dict[str, Any]]) -> float:
    errors = [record["error"] for record in records if record.get("error")]
    if errors:
        raise RuntimeError(f"{len(errors)} rows failed, the first with {errors[0]}")
    return float(sum(record["completion_tokens"] for record in records))


def in_calls(rows: list[Any]) -> list[list[Any]]:
    """A batch's rows as the clients' calls."""
    return [rows[at : at + ROWS_A_CLIENT] for at in range(0, len(rows), ROWS_A_CLIENT)]


def one_round(
    subject: Subject, raw: RawVllm, url: str, sizes: list[int], tokens: int, round_: int
) -> dict[str, float]:
    """Tokens a second of everything, once, on prompts that no cache has seen."""
    speeds: dict[str, float] = {}

    def measured(name: str, result: dict[str, float]) -> None:
        speeds[name] = result["tokens"] / result["seconds"]

    for rows in sizes:
        texts = prompts(rows, round_)
        ids = subject.token_ids(texts, tokens)
        steps = [
            (f"raw_{rows}", lambda ids=ids: raw.batch(ids, tokens)),
            (f"predict_{rows}", lambda texts=texts: subject.predict(texts, tokens)),
        ]
        for name, step in steps if round_ % 2 else reversed(steps):
            measured(name, step())
    texts = prompts(BATCH, 1000 + round_)
    measured("http", over_http(url, in_calls(texts), tokens))
    texts = prompts(BATCH, 2000 + round_)
    measured("batch", subject.predict(texts, tokens))
    measured("locked", raw.locked(in_calls(subject.token_ids(texts, tokens)), tokens))
    return speeds


def startup_seconds(uri: str) -> float:
    """load_model to the first answer, in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.serving", "--first-answer", uri],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith(MARK))
    return float(json.loads(line.removeprefix(MARK))["seconds"])


def start_seconds(uri: str, weights: str, rounds: int) -> dict[str, list[float]]:
    """Ours and raw vLLM's, by turns."""
    starts: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        starts["predict"].append(startup_seconds(uri))
        raw = RawVllm(weights, ENGINE_ARGS)
        starts["raw"].append(raw.started_s)
        raw.close()
        tell({f"start_{name}_s": of[-1] for name, of in starts.items()})
    return starts


def first_answer(uri: str) -> None:
    """What `startup_seconds` runs."""
    began = time.perf_counter()
    model = mlflow.pyfunc.load_model(uri)
    model.predict(pd.DataFrame({"prompt": ["Hi"]}), params={"max_tokens": 1})
    print(MARK + json.dumps({"seconds": time.perf_counter() - began}), flush=True)


def ratios(medians: dict[str, float], sizes: list[int]) -> dict[str, float]:
    """The figures that have targets."""
    found = {f"predict_{n}": medians[f"predict_{n}"] / medians[f"raw_{n}"] for n in sizes}
    found["http"] = medians["http"] / medians["batch"]
    found["http_over_locked"] = medians["http"] / medians["locked"]
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Registers the model, then runs all rounds."""
    from register import register_model

    weights = str(arguments.weights.resolve())
    registered = register_model(
        weights, "benchmark", engine_args=ENGINE_ARGS, settings={"served_deadline_s": 1800.0}
    )
    starts = start_seconds(registered.uri, weights, arguments.startups)
    speeds: dict[str, list[float]] = defaultdict(list)
    raw, subject = RawVllm(weights, ENGINE_ARGS), Subject(registered.uri)
    with subject.serving() as url:
        one_round(subject, raw, url, [BATCH], 4, -1)  # warm
        for round_ in range(arguments.rounds):
            now = one_round(subject, raw, url, arguments.rows, arguments.tokens, round_)
            for name, speed in now.items():
                speeds[name].append(speed)
            tell({"round": round_, **now})
    raw.close()
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    return {
        "tokens_per_second": medians,
        "ratios": ratios(medians, arguments.rows),
        "targets": TARGETS,
        "prefix_cache_hit_rate": prefix_cache_hit_rate(),
        "start_seconds": {name: statistics.median(values) for name, values in starts.items()},
        "rounds": arguments.rounds,
        "tokens_a_row": arguments.tokens,
    }


def tell(facts: dict[str, float]) -> None:
    """Progress, as one line of JSON."""
    print(json.dumps({name: round(value, 1) for name, value in facts.items()}), flush=True)


def prefix_cache_hit_rate() -> float:
    """The part of all prompt tokens in this process that the prefix cache already held."""
    from model.metrics import metrics_text

    counts = {
        line.split('kind="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1])
        for line in metrics_text().decode().splitlines()
        if line.startswith("formline_tokens_total{")
    }
    return counts["cached"] / counts["prompt"]


def show(report: dict[str, Any]) -> None:
    """The table, then the JSON line."""
    table = Table("figure", "measured", "target", title="Serving")
    for name, value in report["ratios"].items():
        table.add_row(name, f"{value:.3f}", f"{TARGETS[name]}" if name in TARGETS else "")
    for name, value in report["tokens_per_second"].items():
        table.add_row(f"{name}, tokens/s", f"{value:.0f}", "")
    for name, value in report["start_seconds"].items():
        table.add_row(f"{name}, seconds to the first answer", f"{value:.1f}", "")
    table.add_row("prefix cache hit rate", f"{report['prefix_cache_hit_rate']:.2f}", "")
    Console().print(table)
    print(json.dumps(report))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--startups", type=int, default=2)
    parser.add_argument("--first-answer", metavar="URI", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")  # raw vLLM on as many cores as ours
    if arguments.first_answer:
        first_answer(arguments.first_answer)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        os.chdir(folder)
        show(measure(arguments))


if __name__ == "__main__":
    main()
