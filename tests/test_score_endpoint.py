"""Scoring against an endpoint that misbehaves: what is tried again, halved, given up."""

from __future__ import annotations

import threading
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fake_target import fake_answer
from scoring import endpoint as endpoint_module
from scoring.endpoint import EndpointTarget
from scoring.errors import TargetError, UsageError
from scoring.limiter import AdaptiveLimit
from scoring.packing import PackSize, pack
from tests.faulty_endpoint import FaultyEndpoint, error, faulty_endpoint

ROWS = pd.DataFrame({"prompt": [f"p {i}" for i in range(40)]}, dtype=object)
BUSY = error(429, "REQUEST_LIMIT_EXCEEDED", "too many", **{"Retry-After": "0.01"})
AWAY = error(503, "TEMPORARILY_UNAVAILABLE", "starting", **{"Retry-After": "0.01"})


def target_of(endpoint: FaultyEndpoint, **params: Any) -> EndpointTarget:
    return EndpointTarget(
        endpoint.url,
        params,
        request_columns=("prompt",),
        known_params=("temperature", "max_tokens"),
    )


def answers_of(endpoint: FaultyEndpoint, rows: pd.DataFrame = ROWS) -> list[dict[str, Any]]:
    target = target_of(endpoint, temperature=0)
    try:
        answers: list[dict[str, Any]] = target.answer(rows).to_pylist()
        return answers
    finally:
        target.close()


def expected(prompt: str) -> str | None:
    return fake_answer(prompt).get("output")


def test_rows_are_packed_and_answered_in_order() -> None:
    with faulty_endpoint() as endpoint:
        answers = answers_of(endpoint)
    assert [a["output"] for a in answers] == [expected(p) for p in ROWS["prompt"]]
    assert [len(rows) for rows in endpoint.calls].count(16) == 2
    assert endpoint.params[0] == {"temperature": 0}


def test_busy_and_starting_are_tried_again_and_nothing_is_doubled() -> None:
    with faulty_endpoint(faults=[BUSY, AWAY, error(502, "X", "y"), BUSY]) as endpoint:
        answers = answers_of(endpoint)
    assert [a["output"] for a in answers] == [expected(p) for p in ROWS["prompt"]]
    assert len(endpoint.calls) == 3 + 4


def test_a_refused_row_is_found_and_the_others_are_answered() -> None:
    def refuse(rows: list[dict[str, Any]]) -> Any:
        bad = any(row["prompt"] == "p 7" for row in rows)
        return error(400, "INVALID_PARAMETER_VALUE", "bad cell") if bad else None

    with faulty_endpoint(fault_of=refuse) as endpoint:
        answers = answers_of(endpoint)
    errors = {i: a["error"] for i, a in enumerate(answers) if a["error"]}
    assert errors == {7: "INVALID_PARAMETER_VALUE: bad cell"}
    assert answers[8]["output"] == expected("p 8")


def test_a_call_that_is_wrong_for_every_row_stops_the_job() -> None:
    with (
        faulty_endpoint(fault_of=lambda rows: error(400, "BAD", "wrong params")) as endpoint,
        pytest.raises(UsageError, match="refuses every row: BAD: wrong params"),
    ):
        answers_of(endpoint)


@pytest.mark.parametrize("status", [413, 504])
def test_a_pack_that_is_too_much_is_halved(status: int) -> None:
    def too_much(rows: list[dict[str, Any]]) -> Any:
        return error(status, "TOO_MUCH", "less, please") if len(rows) > 3 else None

    with faulty_endpoint(fault_of=too_much) as endpoint:
        answers = answers_of(endpoint)
    assert [a["output"] for a in answers] == [expected(p) for p in ROWS["prompt"]]


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_what_another_try_cannot_mend_is_not_tried_again(status: int) -> None:
    with (
        faulty_endpoint(fault_of=lambda rows: error(status, "NO", "no")) as endpoint,
        pytest.raises(TargetError, match="NO: no"),
    ):
        answers_of(endpoint, ROWS.head(3))
    assert len(endpoint.calls) == 1


def test_an_endpoint_that_stays_busy_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "RETRY_REFUSED_S", 0.1)
    with (
        faulty_endpoint(fault_of=lambda rows: AWAY) as endpoint,
        pytest.raises(TargetError, match="starting"),
    ):
        answers_of(endpoint, ROWS.head(3))
    assert len(endpoint.calls) > 1


def test_nobody_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "RETRY_UNREACHABLE_S", 0.1)
    with faulty_endpoint() as endpoint:
        pass
    with pytest.raises(TargetError):
        answers_of(endpoint, ROWS.head(1))


@pytest.mark.parametrize("body", [{"predictions": [{}]}, {"output": 1}, [], {"predictions": "x"}])
def test_a_reply_that_is_not_one_answer_a_row_stops_the_job(body: Any) -> None:
    with faulty_endpoint(faults=[(200, {}, body)]) as endpoint, pytest.raises(TargetError):
        answers_of(endpoint, ROWS.head(3))


def test_a_param_the_model_would_drop_is_refused() -> None:
    with faulty_endpoint() as endpoint, pytest.raises(UsageError, match="did you mean temperature"):
        target_of(endpoint, Temperature=0)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 9), st.integers(1, 120))
def test_packs_hold_every_row_once_within_both_limits(
    sizes: list[int], rows: int, most: int
) -> None:
    packs = list(pack(sizes, rows, most))
    assert [i for span in packs for i in span] == list(range(len(sizes)))
    for span in packs:
        assert len(span) <= rows
        assert len(span) == 1 or sum(sizes[i] for i in span) <= most


def test_the_pack_size_follows_the_time_a_pack_takes() -> None:
    size = PackSize(first=16, most=256)
    for _ in range(30):
        size.took(size.rows, 0.1)
    assert size.rows > 200
    for _ in range(30):
        size.took(size.rows, 300.0)
    assert size.rows < 30
    size.timed_out(size.rows)
    assert size.rows < 15


def test_the_limit_rises_with_success_and_halves_once_a_burst() -> None:
    limit = AdaptiveLimit(8, start=2)
    for _ in range(100):
        limit.succeeded()
    assert limit.limit == 8
    for _ in range(5):
        limit.refused()
    assert limit.limit == 4


def test_no_more_than_the_limit_are_in_flight() -> None:
    limit = AdaptiveLimit(3, start=3)
    inside, most, lock = [0], [0], threading.Lock()

    def hold() -> None:
        with limit.slot():
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            threading.Event().wait(0.01)
            with lock:
                inside[0] -= 1

    threads = [threading.Thread(target=hold) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 3
