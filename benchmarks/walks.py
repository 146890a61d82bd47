"""Walks random allowed paths through constraints to their end and judges every answer.

    python -m benchmarks.walks FILE [--schemas 200] [--walks 50] [--seed 0]

FILE holds schemas as shared/data/README.md describes (.jsonl or .jsonl.gz). Every walk must end,
and every answer must be strict JSON and valid for jsonschema. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model.errors import UnsupportedSchema
from tests.constraint_walks import constraint_of, is_valid, walk


def schemas(path: Path) -> list[Any]:
    """The schemas of a file."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line)["schema"] for line in text.splitlines()]


def faults(schema: Any, walks: int, chance: random.Random) -> Iterator[str]:
    """What goes wrong in so many walks of one schema; nothing when all is well."""
    constraint = constraint_of(schema)
    for _ in range(walks):
        try:
            text = walk(constraint, chance)
        except AssertionError as error:
            yield str(error)
            continue
        if not is_valid(schema, text):
            yield f"invalid: {text[:200]!r}"


def main() -> int:
    """Runs the walks; the exit code is 1 when any of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--walks", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    every = schemas(args.file)
    chance.shuffle(every)
    done = refused = failed = 0
    for schema in every:
        if done == args.schemas:
            break
        try:
            found = list(faults(schema, args.walks, chance))
        except UnsupportedSchema:
            refused += 1
            continue
        done += 1
        failed += len(found)
        for fault in found:
            print(fault)
    result = {"schemas": done, "refused": refused, "walks": done * args.walks, "failed": failed}
    print(json.dumps(result))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
