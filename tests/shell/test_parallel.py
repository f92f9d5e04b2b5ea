"""Running at once: results in order, and one error instead of a group of them."""

from __future__ import annotations

import asyncio

import pytest

from structured_server.errors import UpstreamError, UpstreamFailed, UpstreamTimeout
from structured_server.parallel import together
from tests.shell.simulated_time import now, simulated


class Work:
    """Coroutines that take seconds, and what became of them."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def __call__(self, name: str, seconds: float, error: Exception | None = None) -> str:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.ended.append(f"{name} cancelled")
            raise
        if error is not None:
            raise error
        self.ended.append(name)
        return name


@simulated
async def test_results_come_in_the_order_of_the_coroutines_after_the_longest() -> None:
    work = Work()
    assert ["a", "b", "c"] == await together([work("a", 3), work("b", 1), work("c", 2)])
    assert ["b", "c", "a"] == work.ended
    assert 3 == now()


@simulated
async def test_nothing_to_run_gives_nothing() -> None:
    assert [] == await together([])


@simulated
async def test_one_coroutine_runs_in_the_callers_task() -> None:
    async def whose() -> asyncio.Task[None] | None:
        return asyncio.current_task()

    assert [asyncio.current_task()] == await together([whose()])


@pytest.mark.parametrize("others", [0, 1, 3])
@simulated
async def test_the_first_error_is_raised_bare_and_the_others_are_cancelled(others: int) -> None:
    work, error = Work(), UpstreamFailed("it broke")
    with pytest.raises(UpstreamError) as caught:
        await together([work("bad", 1, error), *(work("slow", 9) for _ in range(others))])
    assert error is caught.value
    assert others * ["slow cancelled"] == work.ended
    assert 1 == now()


@simulated
async def test_of_errors_that_come_at_once_one_is_raised() -> None:
    work = Work()
    errors = [UpstreamFailed("one"), UpstreamTimeout("two")]
    with pytest.raises(UpstreamError) as caught:
        await together([work("bad", 1, error) for error in errors])
    assert caught.value in errors


@simulated
async def test_an_error_deep_inside_comes_out_as_bare_as_one_on_top() -> None:
    work, error = Work(), UpstreamFailed("it broke")

    async def raises_groups() -> str:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error])])

    with pytest.raises(UpstreamError) as caught:
        await together([raises_groups(), work("slow", 9)])
    assert error is caught.value


@simulated
async def test_a_bug_is_not_taken_for_an_error_of_ours() -> None:
    work = Work()
    with pytest.raises(ExceptionGroup) as caught:
        await together([work("bad", 1, ZeroDivisionError()), work("slow", 9)])
    assert [ZeroDivisionError] == [type(error) for error in caught.value.exceptions]
    assert ["slow cancelled"] == work.ended


@simulated
async def test_cancelling_from_outside_cancels_all() -> None:
    work = Work()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await together([work("a", 9), work("b", 9)])
    assert ["a cancelled", "b cancelled"] == sorted(work.ended)
