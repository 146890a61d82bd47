"""What a token costs: the mask of the allowed tokens, and moving on by the token that came.

python -m benchmarks.masks FILE [--vocab smollm2|tekken]

First rows: each schema of the file is compiled anew and one valid instance goes through it token by
token. Steady state: 50 different rows of one schema, of which the second half is counted. Engines
take turns on every schema and row. With --repeat everything is done so many times by engines made
anew, and each step counts with its fastest time: what a busy machine adds falls away. Prints a
table, and JSON as the last line.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import peers, vocabularies
from benchmarks.data import Case, read_cases
from benchmarks.peers import Grammar, Matcher, Peer, Refused
from model.constraints.collector import collect_rarely
from model.constraints.vocabulary import Vocabulary

ENGINES = ("formline", "guidance", "xgrammar")
ROWS = 50


@dataclass
class Row:
    """Nanoseconds of one first row, step by step."""

    compile: int
    mask: list[int] = field(default_factory=list)
    advance: list[int] = field(default_factory=list)

    def fastest(self, other: Row) -> Row:
        return Row(
            min(self.compile, other.compile),
            [min(pair) for pair in zip(self.mask, other.mask, strict=True)],
            [min(pair) for pair in zip(self.advance, other.advance, strict=True)],
        )


@dataclass
class Engine:
    """A peer and what was measured of it."""

    name: str
    peer: Peer
    mask: Any
    rows: dict[str, Row] = field(default_factory=dict)
    refused: int = 0
    rejected: int = 0
    steady_us: list[float] = field(default_factory=list)


class Rejected(Exception):
    """The engine does not allow a valid row."""


def measure(names: Sequence[str], cases: Sequence[Case], vocabulary: Vocabulary) -> list[Engine]:
    """Makes the engines and measures all there is."""
    engines = []
    for name in names:
        peer = peers.load(name, vocabulary)
        engines.append(Engine(name, peer, peer.new_mask()))
    gc.collect()
    gc.freeze()  # as vLLM does once its engine is up
    collect_rarely()  # as our backend does there
    measure_first_rows(engines, cases, vocabulary)
    measure_steady_state(engines, vocabulary)
    return engines


def fastest(rounds: Sequence[Engine]) -> Engine:
    """One engine's rounds as one: each step with its fastest time."""
    best, *others = rounds
    for other in others:
        best.steady_us = [min(pair) for pair in zip(best.steady_us, other.steady_us, strict=True)]
        for name in best.rows.keys() & other.rows.keys():
            best.rows[name] = best.rows[name].fastest(other.rows[name])
    return best


def first_row(engine: Engine, case: Case, tokens: Sequence[int]) -> Row:
    """Compiles the schema and takes the tokens through it. Raises Refused or Rejected."""
    began = perf_counter_ns()
    grammar = engine.peer.compile(case.schema)
    row = Row(perf_counter_ns() - began)
    matcher = grammar.start()
    bits = np.asarray(engine.mask).reshape(-1)
    for token in tokens:
        began = perf_counter_ns()
        matcher.fill(engine.mask)
        filled = perf_counter_ns()
        allowed = (int(bits[token >> 5]) >> (token & 31)) & 1
        before = perf_counter_ns()
        advanced = matcher.advance(token)
        after = perf_counter_ns()
        if not (allowed and advanced):
            raise Rejected
        row.mask.append(filled - began)
        row.advance.append(after - before)
    return row


def measure_first_rows(
    engines: Sequence[Engine], cases: Sequence[Case], vocabulary: Vocabulary
) -> None:
    for turn, case in enumerate(cases):
        text = next((each.text for each in case.instances if each.valid), None)
        if not text:
            continue
        tokens = vocabularies.tokenize(vocabulary, text.encode())
        for engine in rotated(engines, turn):
            try:
                engine.rows[case.name] = first_row(engine, case, tokens)
            except Refused:
                engine.refused += 1
            except Rejected:
                engine.rejected += 1


def measure_steady_state(engines: Sequence[Engine], vocabulary: Vocabulary, seed: int = 7) -> None:
    """Adds each engine's µs a token (mask and advance) for each of the rows."""
    grammars = {engine.name: engine.peer.compile(STEADY_SCHEMA) for engine in engines}
    for turn, text in enumerate(varied_rows(random.Random(seed), ROWS)):
        tokens = vocabularies.tokenize(vocabulary, text.encode())
        for engine in rotated(engines, turn):
            spent = time_row(grammars[engine.name], engine.mask, tokens)
            engine.steady_us.append(spent / len(tokens) / 1000)


def time_row(grammar: Grammar, mask: Any, tokens: Sequence[int]) -> int:
    matcher: Matcher = grammar.start()
    fill, advance = matcher.fill, matcher.advance
    began = perf_counter_ns()
    for token in tokens:
        fill(mask)
        advance(token)
    spent = perf_counter_ns() - began
    if not matcher.can_end():
        raise RuntimeError("an engine does not allow a row of the steady state")
    return spent


def rotated(engines: Sequence[Engine], turn: int) -> Iterator[Engine]:
    for place in range(len(engines)):
        yield engines[(turn + place) % len(engines)]


STEADY_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 60},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "verdict": {"enum": ["yes", "no", "unclear"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
        "reason": {"type": "string"},
    },
    "required": ["name", "age", "verdict", "tags", "reason"],
    "additionalProperties": False,
}
_TEXT = (
    "the document says that a customer paid twice for one order and wants the money back "
    "because nobody answered; 請求書 は 二重 でした café naïve \N{GRINNING FACE} quote \\ slash"
)
_WORDS = _TEXT.split()


def varied_rows(rng: random.Random, count: int) -> Iterator[str]:
    """Different answers to STEADY_SCHEMA, as compact JSON."""
    for _ in range(count):
        answer = {
            "name": " ".join(rng.choices(_WORDS, k=rng.randint(1, 3))).title(),
            "age": rng.randint(0, 130),
            "verdict": rng.choice(["yes", "no", "unclear"]),
            "tags": rng.choices(_WORDS, k=rng.randint(0, 6)),
            "reason": " ".join(rng.choices(_WORDS, k=rng.randint(8, 40))) + '. "So."\n',
        }
        yield json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def summary(nanoseconds: Sequence[int], unit: float) -> dict[str, float]:
    """avg, p50, p95, p99 and max in the unit (1e3: µs, 1e6: ms)."""
    if not nanoseconds:
        return {}
    values = np.array(nanoseconds) / unit
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    found = {"avg": values.mean(), "p50": p50, "p95": p95, "p99": p99, "max": values.max()}
    return {name: round(float(value), 2) for name, value in found.items()}


def report(engine: Engine, common: set[str]) -> dict[str, Any]:
    def steps(part: str, names: set[str]) -> list[int]:
        return [each for name in names for each in getattr(engine.rows[name], part)]

    names = set(engine.rows)
    half = engine.steady_us[len(engine.steady_us) // 2 :]
    return {
        "schemas": len(names),
        "refused": engine.refused,
        "rejected": engine.rejected,
        "tokens": len(steps("mask", names)),
        "compile_ms": summary([row.compile for row in engine.rows.values()], 1e6),
        "first_row_mask_us": summary(steps("mask", names), 1e3),
        "first_row_advance_us": summary(steps("advance", names), 1e3),
        "common_mask_us": summary(steps("mask", common), 1e3),
        "common_advance_us": summary(steps("advance", common), 1e3),
        "steady_first_row_us": round(engine.steady_us[0], 2),
        "steady_us": round(float(np.median(half)), 2),
    }


def ratios(reports: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The first engine's cost over each other's: below one is faster."""
    mine, *others = reports
    found = {}
    for other in others:
        steady = reports[mine]["steady_us"] / reports[other]["steady_us"]
        found[f"steady_{mine}_over_{other}"] = round(steady, 3)
        first = first_average(reports[mine]) / first_average(reports[other])
        found[f"first_row_{mine}_over_{other}"] = round(first, 3)
    return found


def first_average(engine: dict[str, Any]) -> float:
    """Mask and advance on the schemas that all engines take, averages in µs a token."""
    return float(
        engine["common_mask_us"].get("avg", np.nan) + engine["common_advance_us"].get("avg", np.nan)
    )


def table(reports: dict[str, dict[str, Any]], common: int) -> Table:
    made = Table("measure", title=f"{common} schemas are taken by every engine")
    for name in reports:
        made.add_column(name, justify="right")
    for measure in next(iter(reports.values())):
        cells = [reports[name][measure] for name in reports]
        texts = [
            " / ".join(f"{part:g}" for part in cell.values()) if isinstance(cell, dict) else cell
            for cell in cells
        ]
        made.add_row(measure, *map(str, texts))
    made.caption = "avg / p50 / p95 / p99 / max"
    return made


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.masks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path, help=".jsonl or .jsonl.gz of schemas with instances")
    parser.add_argument("--vocab", choices=vocabularies.NAMES, default="smollm2")
    parser.add_argument("--engines", nargs="+", choices=peers.NAMES, default=ENGINES)
    parser.add_argument("--repeat", type=int, default=1, help="times over, keeping the fastest")
    parser.add_argument("--limit", type=int, help="only so many schemas, evenly spread")
    parser.add_argument("--slowest", type=int, default=0, help="list so many slowest masks")
    return parser.parse_args(arguments)


def show_slowest(console: Console, engines: Sequence[Engine], count: int) -> None:
    for engine in engines:
        steps = [
            (took, name, step)
            for name, row in engine.rows.items()
            for step, took in enumerate(row.mask)
        ]
        for took, name, step in sorted(steps, reverse=True)[:count]:
            console.print(f"{engine.name}: {took / 1e6:.2f} ms, {name}, token {step}")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    cases = read_cases(options.file)
    if options.limit:
        cases = cases[:: max(1, len(cases) // options.limit)][: options.limit]
    vocabulary = vocabularies.load(options.vocab)
    rounds = [measure(options.engines, cases, vocabulary) for _ in range(options.repeat)]
    engines = [fastest(same) for same in zip(*rounds, strict=True)]
    common = set.intersection(*(set(engine.rows) for engine in engines))
    reports = {engine.name: report(engine, common) for engine in engines}
    show_slowest(console, engines, options.slowest)
    console.print(table(reports, len(common)))
    settings = {"vocab": options.vocab, "repeat": options.repeat, "common_schemas": len(common)}
    print(json.dumps({**settings, "engines": reports, "ratios": ratios(reports)}))


if __name__ == "__main__":
    main()
