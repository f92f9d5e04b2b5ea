"""`require_draws`: a degraded answer becomes an error, and nothing else does."""

from __future__ import annotations

import pytest

from structured_server.admission import Weight
from structured_server.core.policy import ReadPolicy
from structured_server.errors import DrawsMissing, UpstreamFailed
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, answers_of, query, sure, unsure
from tests.shell.simulated_time import now, simulated


@simulated
async def test_extra_draws_that_failed_are_an_error_with_the_reason() -> None:
    backend = FakeBackend(logprob=unsure)
    backend.failures = {1: UpstreamFailed("it broke."), 3: UpstreamFailed("it broke.")}
    deciding = Deciding(backend)
    with pytest.raises(DrawsMissing) as caught:
        await deciding.driver.decide(query(require_draws=True))
    said = "draws that were wanted could not be made: more reads failed: it broke."
    assert said == caught.value.message
    assert deciding.idle
    assert 1 == answers_of(await deciding.driver.decide(query()))["urgent"].draws, "others are told so"


@simulated
async def test_extra_draws_that_would_be_late_are_an_error_while_there_is_time() -> None:
    backend = FakeBackend(logprob=unsure)
    backend.delays = {0: 3}
    with pytest.raises(DrawsMissing, match="would have missed the deadline"):
        await Deciding(backend).driver.decide(query(require_draws=True, deadline_s=5))
    assert 3 == now()


@simulated
async def test_extra_draws_that_the_limit_of_reads_forbids_were_never_wanted() -> None:
    deciding = Deciding(FakeBackend(logprob=unsure))
    outcome = await deciding.driver.decide(query(require_draws=True, policy=ReadPolicy(max_reads=1)))
    assert 1 == answers_of(outcome)["urgent"].draws


@pytest.mark.parametrize(("samples", "draws"), [("auto", 4), (1, 1), (32, 32)])
@simulated
async def test_where_all_draws_were_made_it_changes_nothing(samples: int | str, draws: int) -> None:
    deciding = Deciding(FakeBackend(logprob=unsure), capacity=Weight(64, 2))
    asked = {"samples": samples, "state": "a valve"}
    required = await deciding.driver.decide(query(require_draws=True, **asked))  # type: ignore[arg-type]
    assert draws == answers_of(required)["urgent"].draws
    plain = await deciding.driver.decide(query(**asked))  # type: ignore[arg-type]
    assert (plain.decision, plain.fingerprint) == (required.decision, required.fingerprint)


@simulated
async def test_who_is_sure_needs_no_more_draws() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    assert 1 == answers_of(await deciding.driver.decide(query(require_draws=True)))["urgent"].draws
