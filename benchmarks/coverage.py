"""How exactly an engine enforces the schemas of a file.

python -m benchmarks.coverage FILE [--backend formline|lmfe|guidance|xgrammar|outlines]

Every instance is judged as it stands and with spaces after `,` and `:`. Prints a table by split,
one by failing keyword, and JSON as the last line. A schema is perfect when it compiles and every
text is judged right. A text of a schema that was refused counts as not accepted.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match
from referencing import Registry
from referencing.exceptions import Unresolvable
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import peers, vocabularies
from benchmarks.data import Case, keywords, read_cases, spellings
from benchmarks.workers import Verdict, judge_all

COMPILE_LIMIT_S = 5.0
JUDGE_LIMIT_S = 30.0
_EXAMPLE = 70  # characters of an example in a table

Judged = Sequence[tuple[Case, Verdict]]


@dataclass
class Tally:
    """Counts over some schemas and their texts."""

    schemas: int = 0
    compiled: int = 0
    perfect: int = 0
    timeouts: int = 0
    crashes: int = 0
    valid: int = 0
    valid_accepted: int = 0
    invalid: int = 0
    invalid_accepted: int = 0
    invalid_accepted_schemas: int = 0

    def add(self, case: Case, verdict: Verdict) -> None:
        self.schemas += 1
        self.compiled += verdict.status == "judged"
        self.perfect += is_perfect(verdict)
        self.timeouts += verdict.status == "timeout"
        self.crashes += verdict.status == "crashed"
        texts = verdict.texts or [
            (text, instance.valid, False)
            for instance in case.instances
            for text in spellings(instance)
        ]
        for _, valid, accepted in texts:
            self.valid += valid
            self.valid_accepted += valid and accepted
            self.invalid += not valid
            self.invalid_accepted += not valid and accepted
        self.invalid_accepted_schemas += any(not valid and took for _, valid, took in texts)

    def report(self) -> dict[str, Any]:
        """The counts, and as "..._percent" the shares."""
        counts: dict[str, Any] = dict(vars(self))
        for name in ("compiled", "perfect", "invalid_accepted_schemas"):
            counts[f"{name}_percent"] = percent(counts[name], self.schemas)
        counts["valid_accepted_percent"] = percent(self.valid_accepted, self.valid)
        counts["invalid_accepted_percent"] = percent(self.invalid_accepted, self.invalid)
        return counts


@dataclass
class Blame:
    """How often a keyword is behind a failure."""

    refused: int = 0
    rejected: int = 0
    accepted: int = 0
    example: str = ""

    @property
    def total(self) -> int:
        return self.refused + self.rejected + self.accepted


def percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def is_perfect(verdict: Verdict) -> bool:
    return verdict.status == "judged" and all(
        valid == accepted for _, valid, accepted in verdict.texts
    )


def blame(judged: Judged) -> dict[str, Blame]:
    """Keyword -> failures. Engines that name no keyword: the schema's least successful one."""
    used: Counter[str] = Counter()
    perfect: Counter[str] = Counter()
    for case, verdict in judged:
        found = keywords(case.schema)
        used.update(found)
        if is_perfect(verdict):
            perfect.update(found)
    found_blame: dict[str, Blame] = defaultdict(Blame)
    for case, verdict in judged:
        if is_perfect(verdict):
            continue
        suspect = min(
            keywords(case.schema), key=lambda each: (perfect[each] / used[each], each), default="-"
        )
        _blame_case(found_blame, case, verdict, suspect)
    return found_blame


def _blame_case(found: dict[str, Blame], case: Case, verdict: Verdict, suspect: str) -> None:
    if verdict.status != "judged":
        mine = found[verdict.keyword or suspect]
        mine.refused += 1
        mine.example = mine.example or f"{case.name}: {verdict.reason or verdict.status}"
        return
    kinds: dict[tuple[str, bool], str] = {}
    for text, valid, accepted in verdict.texts:
        if valid != accepted:
            keyword = suspect if valid else violated(case.schema, text)
            kinds.setdefault((keyword, valid), text)
    for (keyword, valid), text in kinds.items():
        mine = found[keyword]
        mine.rejected += valid
        mine.accepted += not valid
        mine.example = mine.example or f"{case.name}: {text}"


def violated(schema: Any, text: str) -> str:
    """The keyword that an invalid text breaks, by jsonschema."""
    try:
        value = json.loads(text)
    except ValueError:
        return "(JSON syntax)"
    validator = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator
    )(schema, registry=Registry(), format_checker=jsonschema.FormatChecker())
    try:
        error = best_match(validator.iter_errors(value))
    except (Unresolvable, re.error, RecursionError):
        return "(jsonschema fails)"
    return str(error.validator) if error is not None else "(as the file says)"


def by_split(judged: Judged) -> dict[str, Tally]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    for case, verdict in judged:
        for split in {case.split, "all"}:
            tallies[split].add(case, verdict)
    return dict(sorted(tallies.items(), key=lambda entry: (entry[0] == "all", entry[0])))


def split_table(tallies: dict[str, Tally]) -> Table:
    table = Table("split", title="by split")
    for heading in ("schemas", "compiled", "perfect", "%", "valid accepted %", "invalid accepted"):
        table.add_column(heading, justify="right")
    table.add_column("timeouts", justify="right")
    table.add_column("crashes", justify="right")
    for split, tally in tallies.items():
        shares = tally.report()
        cells = (tally.schemas, tally.compiled, tally.perfect, shares["perfect_percent"])
        texts = (shares["valid_accepted_percent"], tally.invalid_accepted)
        table.add_row(split, *map(str, (*cells, *texts, tally.timeouts, tally.crashes)))
    return table


def keyword_table(found: dict[str, Blame]) -> Table:
    table = Table("keyword", title="by failing keyword (schemas)")
    for heading in ("refused", "valid rejected", "invalid accepted"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("example", no_wrap=True)
    for keyword, mine in sorted(found.items(), key=lambda entry: -entry[1].total):
        counts = (mine.refused, mine.rejected, mine.accepted)
        table.add_row(
            keyword, *map(str, counts), escape(mine.example.replace("\n", " ")[:_EXAMPLE])
        )
    return table


def show_failures(console: Console, judged: Iterable[tuple[Case, Verdict]]) -> None:
    for case, verdict in judged:
        if verdict.status != "judged":
            console.print(f"{case.name}: {verdict.status}: {verdict.reason}", markup=False)
        for text, valid, accepted in verdict.texts:
            if valid != accepted:
                kind = "valid rejected" if valid else "invalid ACCEPTED"
                console.print(f"{case.name}: {kind}: {text}", markup=False)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.coverage", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path, help=".jsonl or .jsonl.gz of schemas with instances")
    parser.add_argument("--backend", choices=peers.NAMES, default="formline")
    parser.add_argument("--vocab", choices=vocabularies.NAMES, default="smollm2")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=int, help="only so many schemas, evenly spread")
    parser.add_argument("--failures", action="store_true", help="also list every failure")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    console = Console(width=None if sys.stdout.isatty() else 150)
    cases = read_cases(options.file)
    if options.limit:
        cases = cases[:: max(1, len(cases) // options.limit)][: options.limit]
    peer = peers.load(options.backend, vocabularies.load(options.vocab))
    verdicts = dict(
        judge_all(
            peer,
            cases,
            processes=options.processes,
            compile_limit_s=COMPILE_LIMIT_S,
            judge_limit_s=JUDGE_LIMIT_S,
        )
    )
    judged = [(case, verdicts[position]) for position, case in enumerate(cases)]
    if options.failures:
        show_failures(console, judged)
    tallies = by_split(judged)
    console.print(split_table(tallies), keyword_table(blame(judged)))
    total = tallies.get("all") or Tally()
    compiled = sorted(v.compile_s for _, v in judged if v.status == "judged")
    slowest = {"compile_s_max": round(compiled[-1], 3)} if compiled else {}
    print(json.dumps({"backend": options.backend, **total.report(), **slowest}))


if __name__ == "__main__":
    main()
