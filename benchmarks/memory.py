"""Memory of constraints: many rows with many schemas, against the bound that they are given.

    python -m benchmarks.memory FILE [--rows 10000] [--schemas 200] [--bound-mb 256]

Every row takes one of the schemas and up to 40 random allowed tokens, mask by mask. The memory that
the process has gained is what the system says, not our own estimate. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
from pathlib import Path
from time import perf_counter

import psutil

from benchmarks import vocabularies
from benchmarks.data import read_cases
from model.constraints.automaton import Automaton
from model.constraints.cache import Automata
from model.constraints.spec import ConstraintSpec
from model.constraints.vocabulary import Vocabulary
from model.errors import UnsupportedSchema

_TOKENS = 40
_LOOK_EVERY = 250


def supported(path: Path, count: int, automata: Automata) -> list[ConstraintSpec]:
    """So many schemas of the file, evenly spread, that compile."""
    cases = read_cases(path)
    found: list[ConstraintSpec] = []
    for case in cases[:: max(1, len(cases) // (count * 5 // 4))]:
        spec = ConstraintSpec("json", json.dumps(case.schema))
        try:
            automata.get(spec, automata.masks.vocabulary.eos_ids)
        except UnsupportedSchema:
            continue
        found.append(spec)
    return found[:count]


def follow(automaton: Automaton, vocabulary: Vocabulary, chance: random.Random) -> None:
    """One row of random tokens."""
    state = automaton.start
    for _ in range(_TOKENS):
        allowed = vocabulary.unpack(automaton.mask(state))
        token = int(allowed[chance.randrange(len(allowed))])
        after = None if token in vocabulary.eos_ids else automaton.after(state, token)
        if after is None:
            return
        state = after


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--bound-mb", type=int, default=256)
    options = parser.parse_args()

    vocabulary = vocabularies.load("smollm2")
    automata = Automata(vocabulary, options.bound_mb << 20)
    process, chance = psutil.Process(), random.Random(0)
    before = process.memory_info().rss
    specs = supported(options.file, options.schemas, automata)
    peak = estimate = 0
    began = perf_counter()
    for row in range(options.rows):
        spec = specs[chance.randrange(len(specs))]
        follow(automata.get(spec, vocabulary.eos_ids), vocabulary, chance)
        if row % _LOOK_EVERY == 0:
            gc.collect()
            peak = max(peak, process.memory_info().rss - before)
            estimate = max(estimate, automata.nbytes)
    result = {
        "rows": options.rows,
        "schemas": len(specs),
        "bound_mb": options.bound_mb,
        "gained_mb": round(peak / 2**20),
        "estimate_mb": round(estimate / 2**20),
        "profiles_mb": round(automata.masks.profiles.used_bytes / 2**20),
        "compiled": automata.misses,
        "rows_per_s": round(options.rows / (perf_counter() - began), 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
