"""Flow control without an engine: slots, fairness, and a call's rows through them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.admission import Admission
from model.caller import Caller, calling, current_caller
from model.completion import Choice, Completion, EngineRequest
from model.engine_call import Call, Request
from model.errors import (
    CallerLeft,
    DeadlineExceeded,
    EngineOverloaded,
    EngineUnavailable,
    RowError,
)
from model.window import Share, Window

ANSWER = Completion([Choice("yes", [1], "stop", None, None, None)], 1, 1, 0)


class FakeRows:
    """Stands in for the engine where 100,000 rows are needed: answers each at once, or never."""

    def __init__(self, window: Window, *, answers: bool = True) -> None:
        self.window, self.answers = window, answers
        self.most = self.running = 0
        self.aborted = False

    def start(self, call: Call, position: int, request: EngineRequest) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.answers:
            self.running -= 1
            call.deliver(position, ANSWER)
            self.window.release(call.share)

    def abort(self, call: Call) -> None:
        self.aborted = True


def request() -> EngineRequest:
    return EngineRequest([1], sampling_params=object())


def make_call(
    window: Window, rows: FakeRows, requests: Iterator[Request], **limits: object
) -> Call:
    limits.setdefault("deadline_s", None)
    return Call(rows, window, requests, **limits)  # type: ignore[arg-type]


def test_a_free_slot_is_taken_and_given_back() -> None:
    window, share = Window(1), Share(wake=lambda: None)
    assert window.take(share)
    assert not window.take(share)
    window.release(share)
    assert window.in_flight == 0


def test_a_freed_slot_goes_to_the_call_that_holds_fewest() -> None:
    window = Window(4)
    woken: deque[str] = deque()
    long = Share(wake=lambda: woken.append("long"))
    short = Share(wake=lambda: woken.append("short"))
    assert all(window.take(long) for _ in range(4))
    window.wait(long)
    window.wait(short)
    for _ in range(2):
        window.release(long)
    assert list(woken) == ["short", "short"]
    window.release(long)
    assert woken[-1] == "long"


def test_slots_granted_to_a_call_that_leaves_go_to_the_next() -> None:
    window = Window(1)
    woken: list[str] = []
    holder = Share(wake=lambda: None)
    first, second = (Share(wake=partial(woken.append, name)) for name in "ab")
    assert window.take(holder)
    window.wait(first)
    window.wait(second)
    window.release(holder)
    window.close(first)
    assert woken == ["a", "b"]
    assert window.take(second)


@given(st.lists(st.sampled_from(["take", "release", "wait", "stop", "close"]), max_size=60))
def test_no_slot_is_lost_or_made(steps: list[str]) -> None:
    window = Window(3)
    shares = [Share(wake=lambda: None) for _ in range(3)]
    for at, step in enumerate(steps):
        share = shares[at % 3]
        if step == "take":
            window.take(share)
        elif step == "release" and share.held:
            window.release(share)
        elif step == "wait" and not share.waiting:
            window.wait(share)
        elif step == "stop":
            window.stop_waiting(share)
        elif step == "close":
            window.close(share)
        assert window.in_flight == sum(s.held + s.granted for s in shares) <= 3


def test_a_hundred_thousand_rows_are_pulled_a_window_at_a_time() -> None:
    window = Window(64)
    rows = FakeRows(window)
    pulled = 0

    def requests() -> Iterator[Request]:
        nonlocal pulled
        for _ in range(100_000):
            pulled += 1
            yield request()

    seen = 0
    for position, _ in make_call(window, rows, requests()).events():
        assert pulled - seen <= 65
        seen += 1
        assert 0 <= position < 100_000
    assert seen == 100_000
    assert window.in_flight == 0


def test_row_errors_pass_through_in_their_place() -> None:
    window = Window(2)
    items: list[Request] = [request(), RowError("bad"), request()]
    outcomes = dict(make_call(window, FakeRows(window), iter(items)).events())
    assert isinstance(outcomes[1], RowError)
    assert outcomes[0] == outcomes[2] == ANSWER


@pytest.mark.parametrize("total", [None, 10])
def test_after_the_deadline_every_row_has_an_error(total: int | None) -> None:
    window = Window(4)
    rows = FakeRows(window, answers=False)
    requests = iter([request() for _ in range(10)])
    outcomes = dict(make_call(window, rows, requests, deadline_s=0.01, total=total).events())
    assert sorted(outcomes) == list(range(10))
    assert all(isinstance(o, DeadlineExceeded) for o in outcomes.values())
    assert rows.aborted
    assert len(list(requests)) == (0 if total is None else 6), "known rows are not rendered"


def test_rows_done_before_the_deadline_are_kept_for_a_slow_caller() -> None:
    window = Window(4)
    items: list[Request] = [RowError("bad"), request(), request()]
    call = make_call(window, FakeRows(window, answers=False), iter(items), deadline_s=0.05)
    events = call.events()
    next(events)
    call.deliver(1, ANSWER)
    time.sleep(0.06)
    outcomes = dict(events)
    assert outcomes[1] == ANSWER
    assert isinstance(outcomes[2], DeadlineExceeded)


def test_a_dead_engine_ends_the_call() -> None:
    window = Window(4)
    rows = FakeRows(window, answers=False)
    call = make_call(window, rows, iter([request() for _ in range(10)]))
    for position in range(4):
        call.deliver(position, EngineUnavailable("died"))
    outcomes = dict(call.events())
    assert sorted(outcomes) == list(range(10))
    assert all(isinstance(o, EngineUnavailable) for o in outcomes.values())


def test_closing_a_call_aborts_its_rows() -> None:
    window = Window(4)
    rows = FakeRows(window, answers=False)
    events = make_call(window, rows, iter([request(), RowError("bad"), request()])).events()
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert rows.aborted


@pytest.mark.parametrize("total", [None, 10])
def test_a_caller_that_hangs_up_wakes_its_call(total: int | None) -> None:
    window = Window(4)
    rows = FakeRows(window, answers=False)
    caller = Caller()
    requests = iter([request() for _ in range(10)])
    call = make_call(window, rows, requests, total=total, caller=caller)
    threading.Timer(0.05, caller.leave).start()
    outcomes = dict(call.events())
    assert sorted(outcomes) == list(range(10))
    assert all(isinstance(o, CallerLeft) for o in outcomes.values())
    assert rows.aborted


def test_nothing_is_begun_for_a_caller_that_has_left() -> None:
    window = Window(4)
    rows = FakeRows(window)
    with calling() as caller:
        caller.leave()
        call = make_call(window, rows, iter([request()]), caller=current_caller())
    ((_, outcome),) = call.events()
    assert isinstance(outcome, CallerLeft)
    assert rows.most == 0
    assert not current_caller().left


def test_a_callers_broken_iterator_costs_no_slot() -> None:
    def requests() -> Iterator[Request]:
        yield request()
        raise KeyError("broken")

    window = Window(4)
    with pytest.raises(KeyError):
        list(make_call(window, FakeRows(window), requests()).events())
    assert window.in_flight == 0


def test_admission_counts_the_rows_of_others() -> None:
    admission = Admission()
    with admission.admit(rows=1000, limit=10) as ticket:
        with pytest.raises(EngineOverloaded), admission.admit(rows=1, limit=10):
            pass
        for _ in range(995):
            ticket.answered()
        with admission.admit(rows=1, limit=10):
            assert admission.waiting == 6
    assert admission.waiting == 0
