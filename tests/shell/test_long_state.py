"""States that do not fit: refused with the numbers, or cut as was asked for, and then told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.questions import Noul, Schema
from structured_server.core.reads import ReadRequest
from structured_server.core.state import GAP, LongState
from structured_server.core.tokens import Kind
from structured_server.errors import StateTooLong
from structured_server.jobs import FIRST_LOOK, SEAM
from tests.fake_backend import FakeBackend
from tests.shell.deciding import SCHEMA, Deciding, query, sure
from tests.shell.simulated_time import simulate, simulated

WIDTH = 64
WORDY = Schema((("short", Noul("So?")), ("wordy", Noul("Is it? " * 40))))


async def around(schema: Schema = SCHEMA, **options: object) -> int:
    """Return the tokens of the longest prompt and its canvas around a state."""
    free = Deciding(FakeBackend(widths=[WIDTH], max_model_len=None, logprob=sure))
    await free.driver.decide(query(schema=schema, state="", **options))  # type: ignore[arg-type]
    return WIDTH + max(len(request.prompt.ids) for batch in free.backend.batches for request in batch)


def holding(length: int) -> Deciding:
    """Return a driver over an engine with a context of this length."""
    return Deciding(FakeBackend(widths=[WIDTH], max_model_len=length, logprob=sure))


def shown(request: ReadRequest) -> str:
    """Return the state as a prompt shows it."""
    return "".join(segment.text for segment in request.prompt.segments if segment.kind is Kind.STATE)


@simulated
async def test_by_default_a_state_that_does_not_fit_is_refused_with_the_numbers_and_the_ways_out() -> None:
    room = await around()
    deciding = holding(room + 50)
    with pytest.raises(StateTooLong) as caught:
        await deciding.driver.decide(query(state="x" * 70))
    assert "state has 70 tokens; 50 fit beside these questions." == caught.value.message
    assert ("state",) == caught.value.path
    assert caught.value.hint is not None
    for way in ("read.long_state", f"--max-model-len above {room + 50}"):
        assert way in caught.value.hint
    assert [] == deciding.backend.batches


@simulated
async def test_of_a_state_that_is_far_too_long_only_a_beginning_is_looked_at() -> None:
    deciding = holding(await around() + 50)
    with pytest.raises(StateTooLong) as caught:
        await deciding.driver.decide(query(state="x" * FIRST_LOOK + "y"))
    assert "state has far more tokens than fit; 50 fit beside these questions." == caught.value.message


@simulated
async def test_a_long_state_with_room_for_it_is_read_whole() -> None:
    length = FIRST_LOOK + 100
    deciding = holding(await around() + length)
    outcome = await deciding.driver.decide(query(state="x" * length))
    assert (length, length) == (outcome.state_tokens, outcome.state_tokens_used)


@pytest.mark.parametrize("over", [1, SEAM])
@simulated
async def test_a_long_state_that_hardly_passes_the_room_is_refused_with_its_number(over: int) -> None:
    deciding = holding(await around() + FIRST_LOOK)
    with pytest.raises(StateTooLong) as caught:
        await deciding.driver.decide(query(state="x" * (FIRST_LOOK + over)))
    assert f"state has {FIRST_LOOK + over} tokens; {FIRST_LOOK} fit" in caught.value.message


@pytest.mark.parametrize("long_state", ["reject", "head", "tail", "middle"])
@simulated
async def test_a_state_that_just_fits_is_never_cut(long_state: LongState) -> None:
    deciding = holding(await around() + 50)
    outcome = await deciding.driver.decide(query(state="x" * 50, long_state=long_state))
    assert (50, 50) == (outcome.state_tokens, outcome.state_tokens_used)
    assert () == outcome.decision.warnings
    assert "x" * 50 == shown(deciding.backend.batches[0][0])


@pytest.mark.parametrize(
    ("long_state", "kept"),
    [
        ("head", "ABCDEFGHIJKLMNOPQRST"),
        ("tail", "GHIJKLMNOPQRSTUVWXYZ"),
        ("middle", f"ABCDEFG{GAP}UVWXYZ"),
    ],
)
@simulated
async def test_as_much_as_fits_is_kept_of_the_end_that_was_asked_for_and_the_cut_is_told(
    long_state: LongState, kept: str
) -> None:
    deciding = holding(await around() + 20)
    outcome = await deciding.driver.decide(query(state="ABCDEFGHIJKLMNOPQRSTUVWXYZ", long_state=long_state))
    ((request,),) = deciding.backend.batches
    assert kept == shown(request)
    assert (26, 20) == (outcome.state_tokens, outcome.state_tokens_used)
    (warning,) = outcome.decision.warnings
    assert ("state_truncated", "The model was shown 20 of the state's 26 tokens.", None) == (
        warning.code,
        warning.message,
        warning.question,
    )


@simulated
async def test_the_group_that_leaves_the_least_room_decides_where_the_state_is_cut_for_all() -> None:
    deciding = holding(await around(WORDY, isolate="all") + 20)
    await deciding.driver.decide(query(schema=WORDY, state="x" * 99, isolate="all", long_state="head"))
    assert ["x" * 20, "x" * 20] == [shown(request) for (request,) in deciding.backend.batches]


@simulated
async def test_a_cut_state_is_read_with_the_noise_of_what_is_left_of_it() -> None:
    length = await around() + 20
    deciding = holding(length)
    await deciding.driver.decide(query(state="x" * 99, long_state="head"))
    await deciding.driver.decide(query(state="x" * 20))
    assert deciding.backend.batches[0] == deciding.backend.batches[1]


@given(
    st.text(st.characters(codec="utf-8"), max_size=80),
    st.integers(1, 40),
    st.sampled_from(["head", "tail", "middle"]),
    st.sampled_from(["schema_first", "document_first"]),
)
def test_what_is_left_always_fits(state: str, room: int, long_state: LongState, layout: str) -> None:
    async def scenario() -> None:
        length = await around(layout=layout) + room
        deciding = holding(length)
        outcome = await deciding.driver.decide(query(state=state, long_state=long_state, layout=layout))
        ((request,),) = deciding.backend.batches
        assert len(request.prompt.ids) + request.width <= length
        assert outcome.state_tokens_used <= min(room, outcome.state_tokens)
        cut = outcome.state_tokens_used < outcome.state_tokens
        assert cut is (outcome.state_tokens > room)
        assert cut is bool(outcome.decision.warnings)
        if not cut:
            assert state == shown(request)

    simulate(scenario())
