"""What constraints cost in the real engine: free rows, formline, xgrammar and guidance, in turns.

python -m benchmarks.throughput [--rows 64] [--tokens 64] [--rounds 3]

One engine answers batches of rows that all have the same number of tokens: free rows ignore the end
of text, and the constrained answers cannot end before. Every round brings new schemas, so that each
engine has a first batch (nothing known of its schemas) and a later one in every round; batches take
turns, and medians over the rounds are compared. "any text" is a constraint that allows nearly every
token all the time: what applying any mask costs. Prints a table, and JSON as the last line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

from model.constraints.spec import Backend, ConstraintSpec

if TYPE_CHECKING:
    from model.engine import Engine, EngineRequest

BACKENDS: tuple[Backend, ...] = ("formline", "xgrammar", "guidance")
_WEIGHTS = Path(__file__).resolve().parent.parent / ".cache" / "smollm2-135m-instruct"
_ENDLESS = 1500  # characters: more than any answer here can have
_ANY_TEXT = {"type": "string", "minLength": _ENDLESS}
_ENGINE_ARGS: dict[str, JsonValue] = {
    "max_model_len": 1024,
    "max_num_seqs": 64,
    "enforce_eager": True,
    "dtype": "float32",
    "kv_cache_memory_bytes": 1 << 30,
    "seed": 0,
}


@dataclass(frozen=True)
class Batch:
    """A name to compare by, and the constraint of each row (None: free)."""

    name: str
    constraints: Sequence[ConstraintSpec | None]


def schema(label: str) -> dict[str, Any]:
    """Five fields, named after the label; the last is too long to be finished."""
    tags = {"type": "array", "items": {"type": "string", "maxLength": 8}}
    fields = {
        f"grade_{label}": {"enum": ["yes", "no", "unclear"]},
        f"score_{label}": {"type": "integer", "minimum": 0, "maximum": 100},
        f"name_{label}": {"type": "string", "maxLength": 20},
        f"tags_{label}": {**tags, "minItems": 2, "maxItems": 2},
        f"reason_{label}": {"type": "string", "minLength": _ENDLESS},
    }
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def batches(round_: int, rows: int) -> Iterator[Batch]:
    """The batches of a round, in an order that the next round rotates."""
    turn = round_ % len(BACKENDS)
    yield Batch("free", [None] * rows)
    yield Batch("any text", [ConstraintSpec("json", json.dumps(_ANY_TEXT))] * rows)
    for backend in (*BACKENDS[turn:], *BACKENDS[:turn]):
        one = ConstraintSpec("json", json.dumps(schema(f"r{round_}")), backend)
        many = [
            ConstraintSpec("json", json.dumps(schema(f"r{round_}n{row}")), backend)
            for row in range(rows)
        ]
        for constraints, kind in (([one] * rows, "one schema"), (many, "many schemas")):
            yield Batch(f"{backend}, {kind}, first batch", constraints)
            yield Batch(f"{backend}, {kind}, later", constraints)


def requests(engine: Engine, batch: Batch, tokens: int) -> Iterator[EngineRequest]:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    from model.engine import EngineRequest

    for row, spec in enumerate(batch.constraints):
        prompt = engine.tokenizer.encode(f"Question {row}: grade the document and say why.\n")
        outputs = None if spec is None else StructuredOutputsParams(json=spec.to_text())
        yield EngineRequest(
            prompt,
            SamplingParams(
                temperature=1.0,
                max_tokens=tokens,
                ignore_eos=spec is None,
                structured_outputs=outputs,
            ),
        )


def run(engine: Engine, batch: Batch, tokens: int) -> float:
    """Seconds the batch took; every row must have had all its tokens."""
    made = list(requests(engine, batch, tokens))
    began = time.perf_counter()
    answers = [answer for _, answer in engine.generate(made, deadline_s=None)]
    took = time.perf_counter() - began
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        if answer.completion_tokens != tokens:
            raise RuntimeError(
                f"{batch.name}: a row has {answer.completion_tokens} tokens, not {tokens}"
            )
    return took


def measure(engine: Engine, options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of every batch, by its name, a round each."""
    run(engine, Batch("warm-up", [None] * options.rows), options.tokens)
    for backend in BACKENDS:  # each engine's own start is no row's business
        spec = ConstraintSpec("json", json.dumps(schema("warm")), backend)
        run(engine, Batch("warm-up", [spec]), options.tokens)
    seconds: dict[str, list[float]] = defaultdict(list)
    for round_ in range(options.rounds):
        for batch in batches(round_, options.rows):
            seconds[batch.name].append(run(engine, batch, options.tokens))
    return dict(seconds)


def ratios(medians: dict[str, float]) -> dict[str, float]:
    """What is asked of formline: its time over free rows' and over the others'."""
    found = {"any_text_over_free": medians["any text"] / medians["free"]}
    for kind in ("one schema", "many schemas"):
        for moment in ("first batch", "later"):
            mine = medians[f"formline, {kind}, {moment}"]
            name = f"{kind}, {moment}".replace(", ", "_").replace(" ", "_")
            found[f"{name}_over_free"] = mine / medians["free"]
            found[f"{name}_over_any_text"] = mine / medians["any text"]
            for other in ("xgrammar", "guidance"):
                found[f"{name}_over_{other}"] = mine / medians[f"{other}, {kind}, {moment}"]
    return {name: round(ratio, 3) for name, ratio in found.items()}


def table(seconds: dict[str, list[float]], tokens: int) -> Table:
    made = Table("batch", "median s", "tokens/s", "over free", "all rounds, s")
    free = statistics.median(seconds["free"])
    for name, rounds in seconds.items():
        median = statistics.median(rounds)
        cells = (f"{median:.2f}", f"{tokens / median:.0f}", f"{median / free:.2f}")
        made.add_row(name, *cells, " ".join(f"{each:.2f}" for each in rounds))
    return made


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.throughput", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--weights", type=Path, default=_WEIGHTS)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    from model.config import ModelConfig
    from model.engine import Engine, shutdown_all

    assert set(BACKENDS) <= set(get_args(Backend))
    options = parse_arguments(arguments)
    try:
        engine = Engine.acquire(str(options.weights), ModelConfig(engine_args=_ENGINE_ARGS))
        seconds = measure(engine, options)
    finally:
        shutdown_all()
    medians = {name: statistics.median(rounds) for name, rounds in seconds.items()}
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table(seconds, options.rows * options.tokens))
    sizes = {"rows": options.rows, "tokens": options.tokens, "rounds": options.rounds}
    rounded = {name: round(each, 3) for name, each in medians.items()}
    print(json.dumps({**sizes, "median_s": rounded, "ratios": ratios(medians)}))


if __name__ == "__main__":
    main()
