"""The simulated L4: its model gives back what it was made from, and the ways differ as they must."""

from __future__ import annotations

import pytest

from benchmarks.simulated_l4 import WAYS, Card, Cell, Found, Way, in_virtual_time, simulate

SELDOM = 0.0005  # a second: each decision finds the engine idle


def found(way: Way, uncertain: float, *, per_second: float = SELDOM, warm: bool = False) -> Found:
    return in_virtual_time(simulate(Card(), Cell(way, per_second, warm, uncertain), 40, seed=1))


def test_a_certain_decision_takes_one_read_and_an_uncertain_one_the_time_of_two_steps() -> None:
    assert 122 == pytest.approx(found("auto", 0.0).p50, abs=3)
    assert 310 == pytest.approx(found("auto", 1.0).p50, abs=6)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_makes_the_reads_that_it_is_named_for(way: Way) -> None:
    assert {"auto": 1.0, "four": 4.0}.get(way, 4.0) == found(way, 0.0).reads_each
    assert 4.0 == found(way, 1.0).reads_each


def test_what_is_read_early_costs_certain_decisions_more_than_it_saves_uncertain_ones() -> None:
    lost = found("speculate", 0.0).p50 - found("auto", 0.0).p50
    won = found("auto", 1.0).p50 - found("speculate", 1.0).p50
    assert lost > 2 * won > 0


def test_more_than_the_card_can_do_makes_a_queue() -> None:
    assert found("four", 0.0, per_second=8.0).p50 > 4 * found("auto", 0.0, per_second=8.0).p50
