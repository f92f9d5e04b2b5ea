"""The limit of reads: what is asked for beyond it is refused, what `auto` would add is left out and told."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.policy import MAX_READS, ReadPolicy
from structured_server.core.questions import Choice, Noul, Schema
from structured_server.core.reads import ReadRequest
from structured_server.driver import Outcome
from structured_server.errors import InvalidRequest
from tests.fake_backend import FakeBackend
from tests.shell.deciding import TEAMS, Deciding, query, sure, unsure
from tests.shell.simulated_time import simulate, simulated

WIDE = Schema((("team", Choice("Whose is it?", tuple((team, None) for team in TEAMS))),))
"""Six label ids: two reads a draw where a read may ask for four."""


def reads_of(deciding: Deciding) -> int:
    return sum(map(len, deciding.backend.batches))


def nouls(count: int) -> Schema:
    return Schema(tuple((f"q{index}", Noul(f"Is it {index}?")) for index in range(count)))


@pytest.mark.parametrize(("max_reads", "draws"), [(1, 1), (3, 1), (4, 4), (None, 4)])
@simulated
async def test_auto_stops_at_the_limit_and_says_so(max_reads: int | None, draws: int) -> None:
    deciding = Deciding(FakeBackend(logprob=unsure))
    outcome = await deciding.driver.decide(query(policy=ReadPolicy(max_reads=max_reads)))
    assert draws == reads_of(deciding)
    warned = [warning for warning in outcome.decision.warnings if warning.code == "extra_reads_skipped"]
    assert (draws == 1) is bool(warned)
    if warned:
        assert "3 more would have passed the limit of reads, read.max_reads" in warned[0].message
        assert () == outcome.decision.extended_by


@simulated
async def test_a_sure_answer_at_the_limit_is_nothing_to_warn_of() -> None:
    outcome = await Deciding(FakeBackend(logprob=sure)).driver.decide(query(policy=ReadPolicy(max_reads=1)))
    assert () == outcome.decision.warnings


@simulated
async def test_groups_that_come_first_are_extended_first() -> None:
    deciding = Deciding(FakeBackend(logprob=unsure))
    outcome = await deciding.driver.decide(query(isolate="all", policy=ReadPolicy(max_reads=9)))
    assert [4, 4, 1] == [each.draws for each in outcome.decision.answers.values()]  # type: ignore[union-attr]
    assert 9 == reads_of(deciding)


@pytest.mark.parametrize(("samples", "max_reads"), [(4, 3), (2, 1), (32, 31)])
@simulated
async def test_samples_beyond_the_limit_are_refused_before_anything_is_read(
    samples: int, max_reads: int
) -> None:
    deciding = Deciding()
    with pytest.raises(InvalidRequest) as caught:
        await deciding.driver.decide(query(policy=ReadPolicy(samples, max_reads=max_reads)))
    assert ("read", "max_reads") == caught.value.path
    assert (
        f"read.max_reads allows {max_reads} reads; {samples} draws of these questions take {samples}."
        == caught.value.message
    )
    assert [] == deciding.backend.batches


@simulated
async def test_without_a_limit_of_its_own_a_decision_has_the_default_one() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    await deciding.driver.decide(query(schema=nouls(32), samples=2, isolate="all"))
    assert MAX_READS == reads_of(deciding)
    with pytest.raises(InvalidRequest, match="allows 64 reads"):
        await deciding.driver.decide(query(schema=nouls(33), samples=2, isolate="all"))


@simulated
async def test_one_draw_of_everything_is_always_allowed_by_default_and_never_extended_beyond() -> None:
    deciding = Deciding(FakeBackend(logprob=unsure))
    outcome = await deciding.driver.decide(query(schema=nouls(70), isolate="all", deadline_s=100))
    assert 70 == reads_of(deciding)
    assert 70 == sum(warning.code == "extra_reads_skipped" for warning in outcome.decision.warnings)


@given(
    st.integers(1, 6),
    st.none() | st.integers(1, 40),
    st.just("auto") | st.integers(1, 6),
    st.sampled_from(["none", "all"]),
    st.sampled_from([4, 128]),
)
def test_a_limit_is_never_passed(
    count: int, max_reads: int | None, samples: int | str, isolate: str, max_label_ids: int
) -> None:
    """Whatever is uncertain, and however many reads a draw takes."""
    deciding = Deciding(FakeBackend(logprob=unsure, max_label_ids=max_label_ids))
    schema = Schema((*nouls(count).questions, *WIDE.questions))
    policy = ReadPolicy(samples, max_reads=max_reads)  # type: ignore[arg-type]

    async def scenario() -> None:
        with suppress(InvalidRequest):
            await deciding.driver.decide(query(schema=schema, isolate=isolate, policy=policy))
            assert deciding.backend.batches

    simulate(scenario())
    assert reads_of(deciding) <= (max_reads or MAX_READS)
    assert deciding.idle


# Label sets that take several reads


def shifted(request: ReadRequest, _token_id: int, _position: int) -> float:
    """Give every label the same, but one nat less in the read that does not ask for the first label."""
    return -3.0 - (len(request.label_ids) == 4 and request.label_ids[2] > 22)


@simulated
async def test_a_set_of_labels_beyond_the_cap_takes_more_reads_and_each_counts() -> None:
    deciding = Deciding(FakeBackend(max_label_ids=4))
    await deciding.driver.decide(query(schema=WIDE, samples=1))
    assert 2 == reads_of(deciding)
    first, second = (request.label_ids for batch in deciding.backend.batches for request in batch)
    assert first[:2] == second[:2]
    assert 6 == len({*first, *second})
    with pytest.raises(InvalidRequest, match="2 draws of these questions take 4"):
        await deciding.driver.decide(query(schema=WIDE, policy=ReadPolicy(2, max_reads=3)))


@simulated
async def test_the_answer_from_several_reads_is_that_of_one() -> None:
    outcomes: list[Outcome] = [
        await Deciding(FakeBackend(max_label_ids=cap)).driver.decide(query(schema=WIDE, samples=2))
        for cap in (4, 128)
    ]
    split, whole = (outcome.decision.answers["team"] for outcome in outcomes)
    assert whole == split


@simulated
async def test_reads_on_another_scale_are_made_again_and_warned_of() -> None:
    deciding = Deciding(FakeBackend(logprob=shifted, max_label_ids=4))
    outcome = await deciding.driver.decide(query(schema=WIDE, samples=1))
    assert [1, 1, 1] == [len(batch) for batch in deciding.backend.batches]
    assert deciding.backend.batches[1] == deciding.backend.batches[2]
    codes = {warning.code: warning.message for warning in outcome.decision.warnings}
    assert "1 nats apart" in codes["label_sets_drift"]


@pytest.mark.parametrize("options", [{"constrained": True}, {"steps": 2}], ids=["constrained", "steps"])
@simulated
async def test_what_would_leave_them_without_a_common_scale_is_refused(options: dict[str, object]) -> None:
    deciding = Deciding(FakeBackend(max_label_ids=4, constrained=True, max_steps=8))
    with pytest.raises(InvalidRequest) as caught:
        await deciding.driver.decide(query(schema=WIDE, **options))  # type: ignore[arg-type]
    assert ("read", *options) == caught.value.path
    deciding.backend.capabilities = FakeBackend(constrained=True, max_steps=8).capabilities
    outcome = await deciding.driver.decide(query(schema=WIDE, **options))  # type: ignore[arg-type]
    assert 1 == len(outcome.decision.readings)
