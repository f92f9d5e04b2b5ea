"""The queue in front of the model: what goes together, what is dropped, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future

import pytest

from structured_server.backends.transformers.batching import Worker, WorkerLost, in_thread
from structured_server.errors import UpstreamFailed, UpstreamUnreachable


class Work:
    """Turns words into capitals; the first batch waits until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.batches: list[list[str]] = []

    def __call__(self, words: Sequence[str]) -> list[str]:
        self.batches.append(list(words))
        self.begun.set()
        assert self.go.wait(5), "nobody let the work go"
        if "lost" in words:
            raise WorkerLost("the device is gone.")
        if "fail" in words:
            raise UpstreamFailed("it failed.")
        return [word.upper() for word in words if word != "silent"]


Words = Worker[str, str]


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
async def worker(work: Work) -> AsyncIterator[Words]:
    """Work on words; those of one length are of one kind."""
    worker = Words(work, len)
    yield worker
    work.go.set()
    await worker.close()


async def result(future: Future[str]) -> str:
    async with asyncio.timeout(5):
        return await asyncio.wrap_future(future)


async def busy(worker: Words, work: Work) -> Future[str]:
    """Give it a batch of one to be busy with."""
    (future,) = worker.submit(["first"])
    await asyncio.to_thread(work.begun.wait, 5)
    return future


async def test_items_that_come_together_go_together(worker: Words, work: Work) -> None:
    work.go.set()
    assert ["ONE", "TWO"] == [await result(future) for future in worker.submit(["one", "two"])]
    assert [["one", "two"]] == work.batches


async def test_what_arrives_while_it_works_is_taken_together_next(worker: Words, work: Work) -> None:
    first = await busy(worker, work)
    later = [future for word in ("one", "two", "six") for future in worker.submit([word])]
    work.go.set()
    assert ["FIRST", "ONE", "TWO", "SIX"] == [await result(future) for future in (first, *later)]
    assert [["first"], ["one", "two", "six"]] == work.batches


async def test_kinds_stay_apart_and_the_oldest_goes_first(worker: Words, work: Work) -> None:
    await busy(worker, work)
    futures = worker.submit(["three", "one", "seven", "four", "two"])
    work.go.set()
    assert ["THREE", "ONE", "SEVEN", "FOUR", "TWO"] == [await result(future) for future in futures]
    assert [["first"], ["three", "seven"], ["one", "two"], ["four"]] == work.batches


async def test_a_cancelled_item_is_never_worked_on(worker: Words, work: Work) -> None:
    await busy(worker, work)
    one, two, four = worker.submit(["one", "two", "four"])
    waiting = asyncio.create_task(result(one))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert four.cancel()
    work.go.set()
    assert "TWO" == await result(two)
    (last,) = worker.submit(["last"])
    assert "LAST" == await result(last)
    assert [["first"], ["two"], ["last"]] == work.batches


async def test_an_item_cancelled_during_its_turn_spoils_nothing(worker: Words, work: Work) -> None:
    first = await busy(worker, work)
    assert not first.cancel()
    (later,) = worker.submit(["later"])
    work.go.set()
    assert "LATER" == await result(later)


async def test_an_error_fails_its_own_batch_only(worker: Words, work: Work) -> None:
    work.go.set()
    fails, with_it, other = worker.submit(["fail", "four", "three"])
    for future in (fails, with_it):
        with pytest.raises(UpstreamFailed, match=r"it failed\."):
            await result(future)
    assert "THREE" == await result(other)
    assert worker.ended is None


async def test_a_missing_result_is_an_error_and_hangs_nobody(worker: Words, work: Work) -> None:
    work.go.set()
    (future,) = worker.submit(["silent"])
    with pytest.raises(ValueError, match="zip"):
        await result(future)
    assert worker.ended is None


async def test_a_lost_device_ends_it_and_fails_all(worker: Words, work: Work) -> None:
    waiting = asyncio.create_task(worker.lost())
    lost, behind = worker.submit(["lost", "behind"])
    await asyncio.to_thread(work.begun.wait, 5)
    assert not waiting.done()
    work.go.set()
    for future in (lost, behind):
        with pytest.raises(UpstreamUnreachable, match=r"the device is gone\."):
            await result(future)
    async with asyncio.timeout(5):
        assert "the device is gone." == await waiting
    assert "the device is gone." == worker.ended
    with pytest.raises(UpstreamUnreachable, match=r"the device is gone\."):
        worker.submit(["one"])


async def test_asking_whether_it_is_lost_may_be_given_up_and_asked_again(worker: Words, work: Work) -> None:
    waiting = asyncio.create_task(worker.lost())
    await asyncio.sleep(0)
    waiting.cancel()
    work.go.set()
    worker.submit(["lost"])
    async with asyncio.timeout(5):
        assert "the device is gone." == await worker.lost()


async def test_closing_finishes_the_batch_and_fails_what_is_in_line(worker: Words, work: Work) -> None:
    first = await busy(worker, work)
    (behind,) = worker.submit(["one"])
    closing = asyncio.create_task(worker.close())
    with pytest.raises(UpstreamUnreachable, match="closing"):
        await result(behind)
    work.go.set()
    await closing
    assert "FIRST" == await result(first)
    assert [["first"]] == work.batches


async def test_a_job_in_a_thread_returns_or_raises_what_it_does() -> None:
    assert threading.get_ident() != await in_thread(threading.get_ident)
    with pytest.raises(KeyError):
        await in_thread(lambda: {"present": 1}["missing"])
