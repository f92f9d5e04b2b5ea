"""The short forms of what `make chaos`, `make soak` and `make hostile` measure, for a busy machine."""

from __future__ import annotations

from benchmarks import chaos, hostile, overload, restart, soak
from benchmarks.reliability.verdicts import Check, Measured


def broken(measured: Measured) -> list[Check]:
    """Return the checks that do not hold."""
    return [check for check in measured.checks if not check.holds]


async def test_arrivals_at_twice_the_capacity_are_answered_in_time_or_refused_at_once() -> None:
    assert [] == broken(await overload.measure(overload.SHORT))


async def test_with_faults_upstream_every_answer_is_right_or_a_typed_error() -> None:
    assert [] == broken(await chaos.measure(chaos.SHORT))


async def test_an_engine_that_dies_and_returns_needs_no_restart_of_the_server() -> None:
    assert [] == broken(await restart.measure(restart.SHORT))


async def test_under_lasting_load_nothing_grows_and_equal_alerts_cost_one_decision() -> None:
    assert [] == broken(await soak.measure(soak.SHORT))


async def test_hostile_input_is_refused_cheaply_while_others_are_answered() -> None:
    assert [] == broken(await hostile.measure(hostile.SHORT))
