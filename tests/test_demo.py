"""The demo's own pieces; its whole run is `make demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import demo
from scripts.scoring_server import serve
from scripts.worked_example import is_valid


@pytest.mark.parametrize(
    ("answer", "valid"),
    [
        ('{"grade":"yes"}', True),
        ('{ "grade": "no" }', True),
        ('{"grade":"maybe"}', False),
        ('{"grade":"yes"', False),
        ("yes", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_grade_counts_as_valid(answer: str | None, valid: bool) -> None:
    assert is_valid(answer) is valid


def test_a_row_counts_when_every_way_of_asking_got_a_valid_answer() -> None:
    yes = '{"grade":"yes"}'
    assert demo.all_valid([yes, yes, yes])
    assert not demo.all_valid([yes, None, yes])
    assert not demo.all_valid(["{", yes, yes])


def test_other_weights_or_sources_have_another_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"12")
    one = demo.fingerprint(tmp_path)
    assert demo.fingerprint(tmp_path) == one
    (tmp_path / "model.safetensors").write_bytes(b"123")
    other_weights = demo.fingerprint(tmp_path)
    monkeypatch.setattr(demo, "SOURCES", demo.SOURCES[1:])
    assert len({one, other_weights, demo.fingerprint(tmp_path)}) == 3


def test_a_server_that_does_not_come_up_shows_its_log(registry: str) -> None:
    with (
        pytest.raises(RuntimeError, match=r"(?s)did not come up; its log ends:.*no-such-model"),
        serve("models:/no-such-model/1"),
    ):
        pytest.fail("there is nothing to serve")
