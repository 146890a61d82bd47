"""The tools that measure: what they read, how they judge, and what a bad engine does to them."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benchmarks import coverage, masks, vocabularies
from benchmarks.data import Case, Instance, keywords, read_cases, spaced
from benchmarks.peers import Grammar, Matcher, Peer, Refused
from benchmarks.workers import Verdict, judge_all
from model.constraints.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [b"ab", b""], [257])


def test_reads_both_forms_of_cases(tmp_path: Path) -> None:
    many = {"id": "a", "split": "s", "schema": {}, "instances": [{"text": "1", "valid": True}]}
    one = {"name": "b", "schema": False, "text": "\u2028", "valid": False}
    lines = "\n".join(json.dumps(each, ensure_ascii=False) for each in (many, one)) + "\n\n"
    (tmp_path / "cases.jsonl").write_text(lines)
    (tmp_path / "cases.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    expected = [
        Case("a", "s", {}, (Instance("1", True),)),
        Case("b", "all", False, (Instance("\u2028", False),)),
    ]
    assert read_cases(tmp_path / "cases.jsonl") == expected
    assert read_cases(tmp_path / "cases.jsonl.gz") == expected


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"schema": {}, "instances": []}\n{"schema": {}}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_cases(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1,"b":[2,3]}', '{"a": 1, "b": [2, 3]}'),
        (r'{"a,:\"":",:"}', r'{"a,:\"": ",:"}'),
        ("1", "1"),
        ('["unclosed,', '["unclosed, '),
    ],
)
def test_spaced(text: str, expected: str) -> None:
    assert spaced(text) == expected


def test_keywords_are_not_property_names() -> None:
    schema = {
        "properties": {"minimum": {"maximum": 1}, "not": True},
        "enum": [{"pattern": 1}],
        "anyOf": [{"format": "date"}],
    }
    assert keywords(schema) == {"properties", "maximum", "enum", "anyOf", "format"}


def test_tokenize_takes_the_longest_tokens() -> None:
    assert vocabularies.tokenize(VOCABULARY, b"aabb\xff") == [97, 256, 98, 255]
    with pytest.raises(ValueError, match="byte 1"):
        vocabularies.tokenize(Vocabulary.from_bytes([b"a"], []), b"ab")


class WhatItSays(Peer):
    """An engine that does what its schema says, to see how its faults are counted."""

    def compile(self, schema: Any) -> Grammar:
        if schema == "refuse":
            raise Refused("no", "pattern")
        if schema == "raise":
            raise RuntimeError("oh")
        if schema == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        while schema == "hang":
            pass
        return Says(self.vocabulary, schema)


class Says(Grammar):
    def __init__(self, vocabulary: Vocabulary, says: str) -> None:
        super().__init__(vocabulary)
        self.says = says

    def start(self) -> Matcher:
        raise NotImplementedError

    def accepts(self, text: str) -> bool:
        while self.says == "hang later":
            pass
        return self.says == "all" or text == self.says


def judge(*schemas: str) -> dict[str, Verdict]:
    instances = (Instance("[1,2]", True), Instance("2", False))
    cases = [Case(schema, "s", schema, instances) for schema in schemas]
    peer = WhatItSays(VOCABULARY)
    verdicts = judge_all(peer, cases, processes=2, compile_limit_s=0.3, judge_limit_s=0.3)
    return {schemas[position]: verdict for position, verdict in verdicts}


def test_every_fault_costs_its_own_case_only() -> None:
    verdicts = judge("die", "all", "hang", "raise", "hang later", "refuse", "[1,2]")
    assert {name: verdict.status for name, verdict in verdicts.items()} == {
        "die": "crashed",
        "all": "judged",
        "hang": "timeout",
        "raise": "crashed",
        "hang later": "timeout",
        "refuse": "refused",
        "[1,2]": "judged",
    }
    assert verdicts["refuse"].keyword == "pattern"
    assert "oh" in verdicts["raise"].reason
    assert verdicts["all"].texts == [
        ("[1,2]", True, True),
        ("[1, 2]", True, True),
        ("2", False, True),
    ]


def test_tally_counts_texts_and_schemas() -> None:
    tally = coverage.Tally()
    instances = (Instance("[1,2]", True), Instance("2", False))
    for name, verdict in judge("all", "refuse", "hang", "[1,2]").items():
        tally.add(Case(name, "s", {}, instances), verdict)
    assert not coverage.is_perfect(Verdict("refused"))
    found = tally.report()
    counts = (found["schemas"], found["compiled"], found["perfect"], found["timeouts"])
    assert counts == (4, 2, 0, 1)
    assert (found["valid"], found["valid_accepted"]) == (8, 3)
    assert (found["invalid"], found["invalid_accepted"]) == (4, 1)
    assert found["valid_accepted_percent"] == 37.5


def test_blame_names_the_keyword_that_is_broken() -> None:
    case = Case("c", "s", {"type": "integer", "minimum": 5}, ())
    verdict = Verdict("judged", texts=[("3", False, True), ("{", False, True), ("7", True, True)])
    found = coverage.blame([(case, verdict)])
    assert {keyword: mine.accepted for keyword, mine in found.items()} == {
        "minimum": 1,
        "(JSON syntax)": 1,
    }


def test_rows_of_the_steady_state_are_valid_and_differ() -> None:
    rows = list(masks.varied_rows(random.Random(1), 50))
    assert len(set(rows)) == 50
    for row in rows:
        jsonschema.validate(json.loads(row), masks.STEADY_SCHEMA)


@pytest.mark.parametrize("backend", ["formline", "guidance", "xgrammar", "outlines", "lmfe"])
def test_tools_run_on_every_engine(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], small_model_dir: Path
) -> None:
    pytest.importorskip(
        {"guidance": "llguidance", "outlines": "outlines_core"}.get(backend, "torch")
    )
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    instances = [{"text": '{"a":1,"b":"y"}', "valid": True}, {"text": '{"a":"1"}', "valid": False}]
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps({"id": "a", "schema": schema, "instances": instances}) + "\n")
    coverage.main([str(path), "--backend", backend, "--processes", "1"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["schemas"], found["perfect"], found["invalid_accepted"]) == (1, 1, 0)
    if backend not in ("lmfe", "outlines"):
        masks.main([str(path), "--engines", backend])
        found = json.loads(capsys.readouterr().out.splitlines()[-1])["engines"][backend]
        assert (found["schemas"], found["rejected"], found["refused"]) == (1, 0, 0)
        assert found["steady_us"] > 0
