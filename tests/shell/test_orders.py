"""Orders and temperatures: what they do to a decision's numbers, and that it is told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from structured_server.core.answers import Answer
from structured_server.core.policy import ByType, ReadPolicy
from structured_server.core.questions import Choice, Noul, Schema, Score
from structured_server.core.reads import ReadRequest
from structured_server.driver import Outcome
from structured_server.errors import InvalidRequest
from tests.fake_backend import FakeBackend
from tests.shell.deciding import TEAMS, Deciding, query, unsure
from tests.shell.simulated_time import simulated
from tests.toy import ToyTokenizer

TOY = ToyTokenizer()
TEAM = Schema((("team", Choice("Whose is it?", tuple((team, None) for team in TEAMS))),))
PLACES = Schema((("place", Choice("Where?", (("north wing", None), ("attic", None), ("cellar", None)))),))


def answer(outcome: Outcome, name: str) -> Answer:
    found = outcome.decision.answers[name]
    assert isinstance(found, Answer)
    return found


def listed(request: ReadRequest) -> tuple[str, ...]:
    """Return the option lines of a prompt, in their order."""
    text = "".join(segment.text for segment in request.prompt.segments)
    return tuple(line for line in text.splitlines() if line.startswith("- "))


def likes_networking(_request: ReadRequest, token_id: int, _position: int) -> float:
    return -0.5 if TOY.token_text(token_id).strip() == "networking" else -3.0


def likes_the_letter_a(_request: ReadRequest, token_id: int, _position: int) -> float:
    return -0.001 if TOY.token_text(token_id).strip() == "A" else -12.0


# Orders


@pytest.mark.parametrize(("samples", "orders"), [(1, 1), (2, 2), (3, 3), (5, 3)])
@simulated
async def test_each_draw_lists_the_options_in_another_cyclic_order_and_the_orders_are_told(
    samples: int, orders: int
) -> None:
    deciding = Deciding()
    outcome = await deciding.driver.decide(query(schema=TEAM, samples=samples, rotate=True))
    (batch,) = deciding.backend.batches
    straight = tuple(f"- {team}" for team in TEAMS)
    turned = [straight[turn % 3 :] + straight[: turn % 3] for turn in range(samples)]
    assert turned == [listed(request) for request in batch]
    assert (samples, orders) == (answer(outcome, "team").draws, answer(outcome, "team").orders)
    assert (orders > 1) is (answer(outcome, "team").order_spread is not None)


@simulated
async def test_without_rotation_every_draw_has_one_prompt_and_there_is_no_spread_over_orders() -> None:
    deciding = Deciding()
    outcome = await deciding.driver.decide(query(schema=TEAM, samples=3))
    assert 1 == len({request.prompt for request in deciding.backend.batches[0]})
    assert (1, None) == (answer(outcome, "team").orders, answer(outcome, "team").order_spread)


@simulated
async def test_an_extension_reads_in_the_orders_that_are_left() -> None:
    deciding = Deciding(FakeBackend(logprob=unsure))
    await deciding.driver.decide(query(schema=TEAM, rotate=True))
    (first,), extra = deciding.backend.batches
    assert 3 == len({first.prompt, *(request.prompt for request in extra)})
    assert first.prompt == extra[-1].prompt, "the circle has come round"


@simulated
async def test_words_keep_their_numbers_in_every_order() -> None:
    deciding = Deciding(FakeBackend(logprob=likes_networking))
    turned, straight = [
        answer(await deciding.driver.decide(query(schema=TEAM, samples=3, rotate=rotate)), "team")
        for rotate in (True, False)
    ]
    assert straight.distribution == turned.distribution
    assert 0 == turned.order_spread
    assert "networking" == turned.key


@simulated
async def test_a_letters_bias_is_spread_over_the_options_and_seen() -> None:
    """A model that always says A agrees with itself and has said nothing."""
    deciding = Deciding(FakeBackend(logprob=likes_the_letter_a))
    turned, straight = [
        answer(await deciding.driver.decide(query(schema=PLACES, samples=3, rotate=rotate)), "place")
        for rotate in (True, False)
    ]
    assert ("north wing", 1.0) == (straight.key, straight.agreement)
    assert straight.distribution.top_probability > 0.99
    assert pytest.approx([1 / 3] * 3) == list(turned.distribution.probabilities)
    assert turned.order_spread is not None
    assert turned.order_spread > 0.99
    assert turned.agreement < 0.5
    assert turned.standard_error is not None
    assert turned.standard_error > 0.3


@simulated
async def test_a_scores_levels_stay_in_their_order() -> None:
    deciding = Deciding()
    schema = Schema((("risk", Score("How bad?", ("none", "low", "high"))), *TEAM.questions))
    outcome = await deciding.driver.decide(query(schema=schema, samples=3, rotate=True))
    levels = [
        [line for line in listed(each) if line[2:] in ("none", "low", "high")]
        for each in deciding.backend.batches[0]
    ]
    assert [["- none", "- low", "- high"]] * 3 == levels
    assert [1, 3] == [answer(outcome, name).orders for name in ("risk", "team")]


# Temperatures


def four_to_one(_request: ReadRequest, token_id: int, _position: int) -> float:
    """Give yes, networking and none four times what the others get."""
    first = TOY.token_text(token_id).strip() in ("yes", "networking", "none")
    return -2.0 + (math.log(4) if first else 0.0)


ALL_TYPES = Schema(
    (
        ("urgent", Noul("Wake somebody?")),
        ("team", Choice("Whose is it?", (("networking", None), ("compute", None)))),
        ("risk", Score("How bad?", ("none", "low"))),
    )
)


@pytest.mark.parametrize(
    ("temperatures", "odds"),
    [
        (ByType.same(1.0), (4, 4, 4)),
        (ByType.same(2.0), (2, 2, 2)),
        (ByType.same(0.5), (16, 16, 16)),
        (ByType(2.0, 1.0, 0.5), (2, 4, 16)),
    ],
)
@simulated
async def test_odds_are_raised_to_one_over_the_temperature_of_the_questions_type(
    temperatures: ByType, odds: tuple[float, ...]
) -> None:
    deciding = Deciding(FakeBackend(logprob=four_to_one))
    outcome = await deciding.driver.decide(
        query(schema=ALL_TYPES, policy=ReadPolicy(2, temperatures=temperatures))
    )
    found = [answer(outcome, name).distribution.probabilities for name, _ in ALL_TYPES.questions]
    assert pytest.approx(odds) == [first / second for first, second in found]


@simulated
async def test_a_temperature_moves_neither_label_mass_nor_the_entropy_that_auto_looks_at() -> None:
    decisions: list[list[Any]] = []
    for temperature in (1.0, 50.0, 0.02):
        deciding = Deciding(FakeBackend(logprob=four_to_one))
        policy = ReadPolicy(temperatures=ByType.same(temperature))
        outcome = await deciding.driver.decide(query(schema=ALL_TYPES, policy=policy))
        assert [1, 3] == [len(batch) for batch in deciding.backend.batches]
        decisions.append(
            [
                (answer(outcome, name).distribution.label_mass, answer(outcome, name).first_entropy)
                for name, _ in ALL_TYPES.questions
            ]
        )
    assert decisions[0] == decisions[1] == decisions[2]


@simulated
async def test_temperatures_are_part_of_the_fingerprint() -> None:
    deciding = Deciding(FakeBackend(logprob=four_to_one))
    prints = {
        (await deciding.driver.decide(query(policy=ReadPolicy(temperatures=temperatures)))).fingerprint
        for temperatures in (ByType.same(1.0), ByType.same(2.0), ByType(1.0, 2.0, 1.0))
    }
    assert 3 == len(prints)


# Entropy thresholds


@simulated
async def test_each_type_is_uncertain_by_its_own_threshold() -> None:
    deciding = Deciding(FakeBackend(logprob=four_to_one))
    policy = ReadPolicy(entropy_thresholds=ByType(0.69, 0.1, 0.69))
    outcome = await deciding.driver.decide(query(schema=ALL_TYPES, policy=policy))
    assert ("team",) == outcome.decision.extended_by


# Constrained reads


@simulated
async def test_a_constrained_read_has_no_label_mass_and_no_limit_on_one_is_broken() -> None:
    deciding = Deciding(FakeBackend(logprob=four_to_one, constrained=True))
    outcome = await deciding.driver.decide(query(schema=ALL_TYPES, samples=2, constrained=True))
    assert all(request.constrained for request in deciding.backend.batches[0])
    assert {None} == {answer(outcome, name).distribution.label_mass for name, _ in ALL_TYPES.questions}
    assert () == outcome.decision.warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 2}, "read.steps may be at most 1 with this backend, got 2."),
        ({"constrained": True}, "read.constrained is not possible with this backend."),
    ],
)
@simulated
async def test_what_the_backend_cannot_do_is_the_callers_error(options: dict[str, Any], message: str) -> None:
    deciding = Deciding()
    with pytest.raises(InvalidRequest) as caught:
        await deciding.driver.decide(query(**options))
    assert (message, ("read", *options)) == (caught.value.message, caught.value.path)
    assert [] == deciding.backend.batches


@simulated
async def test_steps_reach_the_backend() -> None:
    deciding = Deciding(FakeBackend(max_steps=8))
    await deciding.driver.decide(query(steps=8))
    assert {8} == {request.steps for batch in deciding.backend.batches for request in batch}
