"""The breaker: open after failures in a row, half open after a pause, closed by the first success."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.breaker import FAILURES, FIRST_PAUSE_S, LONGEST_PAUSE_S, Breaker


class Clock:
    """Stands still unless it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A breaker with its clock in reach."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.breaker = Breaker(self.clock)

    def fails(self, times: int = 1) -> None:
        """Let attempts fail."""
        for _ in range(times):
            self.breaker.attempt()
            self.breaker.failed()

    def after(self, seconds: float) -> Breaker:
        """Return the breaker some time later."""
        self.clock.now += seconds
        return self.breaker


@pytest.fixture
def watched() -> Watched:
    """A breaker that knows nothing yet."""
    return Watched()


def test_it_opens_with_the_last_of_so_many_failures_in_a_row(watched: Watched) -> None:
    watched.fails(FAILURES - 1)
    assert ("closed", True) == (watched.breaker.state, watched.breaker.allows())
    watched.fails()
    assert ("open", False) == (watched.breaker.state, watched.breaker.allows())


def test_a_success_in_between_begins_the_count_anew(watched: Watched) -> None:
    watched.fails(FAILURES - 1)
    watched.breaker.succeeded()
    watched.fails(FAILURES - 1)
    assert "closed" == watched.breaker.state


def test_after_the_pause_it_lets_one_attempt_through_and_no_second(watched: Watched) -> None:
    watched.fails(FAILURES)
    assert "open" == watched.after(FIRST_PAUSE_S - 0.001).state
    breaker = watched.after(0.001)
    assert ("half_open", True) == (breaker.state, breaker.allows())
    breaker.attempt()
    assert ("half_open", False) == (breaker.state, breaker.allows())


def test_the_attempt_decides_whether_it_closes(watched: Watched) -> None:
    watched.fails(FAILURES)
    breaker = watched.after(FIRST_PAUSE_S)
    breaker.attempt()
    breaker.succeeded()
    assert ("closed", True) == (breaker.state, breaker.allows())
    watched.fails(FAILURES - 1)
    assert "closed" == breaker.state, "all is forgotten"


def test_an_attempt_that_was_given_up_leaves_room_for_another(watched: Watched) -> None:
    watched.fails(FAILURES)
    breaker = watched.after(FIRST_PAUSE_S)
    breaker.attempt()
    breaker.abandoned()
    assert ("half_open", True) == (breaker.state, breaker.allows())


def test_each_pause_is_twice_as_long_as_the_one_before_up_to_the_longest(watched: Watched) -> None:
    watched.fails(FAILURES)
    pauses = []
    for _ in range(8):
        begun = watched.clock.now
        while watched.breaker.state == "open":
            watched.clock.now += 0.5
        pauses.append(watched.clock.now - begun)
        watched.fails()
    assert [1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S] == pauses


def test_after_a_success_the_first_pause_is_short_again(watched: Watched) -> None:
    watched.fails(FAILURES)
    watched.after(FIRST_PAUSE_S)
    watched.fails()
    watched.after(2 * FIRST_PAUSE_S).succeeded()
    watched.fails(FAILURES)
    assert "half_open" == watched.after(FIRST_PAUSE_S).state


def test_those_who_were_under_way_when_it_opened_do_not_lengthen_the_pause(watched: Watched) -> None:
    watched.fails(FAILURES)
    watched.clock.now += FIRST_PAUSE_S / 2
    for _ in range(20):
        watched.breaker.failed()
    assert "half_open" == watched.after(FIRST_PAUSE_S / 2).state


@given(st.lists(st.sampled_from(["attempt", "succeeded", "failed", "abandoned", "wait"]), max_size=60))
def test_it_lets_somebody_through_within_the_longest_pause_whatever_happened(events: list[str]) -> None:
    watched = Watched()
    for event in events:
        if event == "wait":
            watched.clock.now += 0.7
        elif event != "attempt" or watched.breaker.allows():
            getattr(watched.breaker, event)()
    watched.breaker.abandoned()  # every attempt comes to an end
    assert watched.after(LONGEST_PAUSE_S).allows()
