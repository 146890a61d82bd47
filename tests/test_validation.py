"""Answers judged against the caller's constraint; nothing is fetched and nothing hangs."""

from __future__ import annotations

import gzip
import json
import re
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from model.constraints.spec import ConstraintSpec
from model.validation import KEYWORD_CHECKS, find_fault

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def fault(text: str, json_schema: Any) -> str | None:
    return find_fault(text, ConstraintSpec("json", json.dumps(json_schema)))


@pytest.mark.parametrize(
    ("text", "json_schema", "what"),
    [
        ('{"a": 1}', {"properties": {"a": {"type": "string"}}}, r"\$\.a: keyword 'type'"),
        ('{"a": 1,}', {}, "not valid JSON"),
        ('{"a": 1, "a": 2}', {}, "a key comes twice"),
        ("NaN", {}, "NaN is not JSON"),
        ('{"a": "x', {}, "not valid JSON"),
        ('"b"', {"pattern": "^a"}, "keyword 'pattern'"),
        ('{"xa": 1}', {"patternProperties": {"^x": {"type": "string"}}}, "keyword 'type'"),
        ("7", {"minimum": 1, "maximum": 5}, "keyword 'maximum'"),
        ("1", False, "keyword None"),
    ],
)
def test_a_broken_answer_is_found(text: str, json_schema: Any, what: str) -> None:
    found = fault(text, json_schema)
    assert found is not None
    assert re.search(what, found), found


@pytest.mark.parametrize(
    ("text", "json_schema"),
    [
        ('{"姓氏": "在线 🎉"}', {"required": ["姓氏"]}),
        ('"Fifty men"', {"pattern": "^Fifty"}),
        ("[1, 2]", {"prefixItems": [{"type": "integer"}], "items": {"type": "integer"}}),
        (
            '{"x1": 1}',
            {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
        ),
        ("1", True),
    ],
)
def test_a_valid_answer_is_left_alone(text: str, json_schema: Any) -> None:
    assert fault(text, json_schema) is None


@pytest.mark.parametrize(
    ("spec", "right", "wrong"),
    [
        (ConstraintSpec("choice", '["yes", "no"]'), "yes", "maybe"),
        (ConstraintSpec("regex", "[0-9]{3}|x"), "123", "1234"),
        (ConstraintSpec("json_object", ""), '{"a": []}', "[1]"),
    ],
)
def test_other_kinds_of_constraint(spec: ConstraintSpec, right: str, wrong: str) -> None:
    assert find_fault(right, spec) is None
    assert find_fault(wrong, spec) is not None


def test_report_36_a_remote_ref_is_never_fetched() -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        ref = f"http://127.0.0.1:{server.server_port}/schema.json"
        found = fault('{"a": 1}', {"properties": {"a": {"$ref": ref}}})
        server.shutdown()
    assert found is not None
    assert "could not be checked" in found
    assert asked == []


def test_report_37_a_catastrophic_pattern_does_not_hang() -> None:
    found = fault(json.dumps("a" * 40 + "!"), {"pattern": "^(a+)+$"})
    assert found is not None


def test_report_37_a_pattern_without_an_automaton_does_not_hang() -> None:
    found = find_fault("a" * 60, ConstraintSpec("regex", r"(a|aa)+\1y", backend="outlines"))
    assert found is not None
    assert "takes too long" in found


def test_report_37_a_catastrophic_pattern_of_a_property_does_not_hang() -> None:
    found = fault(json.dumps({"a" * 40 + "!": 1}), {"patternProperties": {"^(a+)+$": False}})
    assert found is None or "could not be checked" in found


def test_report_37_refs_that_multiply_do_not_hang() -> None:
    doubling = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(40)
    }
    found = fault("1", {"$ref": "#/$defs/d0", "$defs": {**doubling, "d40": {}}})
    assert found is not None
    assert str(KEYWORD_CHECKS) in found


def test_a_ref_to_itself_does_not_hang() -> None:
    assert fault("1", {"$ref": "#"}) is not None


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")  # of patterns in the schemas
def test_judges_as_jsonschema_does() -> None:
    path = SHARED / "jsonschemabench.jsonl.gz"
    if not path.exists():
        pytest.skip("the judged schemas lie beside the checkout, not in it")
    with gzip.open(path, "rt") as lines:
        cases = [json.loads(line) for _, line in zip(range(150), lines, strict=False)]
    different, seen = [], 0
    for case in cases:
        dialect = validator_for(case["schema"], default=Draft202012Validator)
        theirs = dialect(case["schema"], format_checker=dialect.FORMAT_CHECKER)
        for instance in case["instances"]:
            seen += 1
            valid = theirs.is_valid(json.loads(instance["text"]))
            if valid != (fault(instance["text"], case["schema"]) is None):
                different.append(case["id"])
    assert seen > 150
    assert different == []
