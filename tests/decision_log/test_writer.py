"""The writer: off the path of requests, bounded, and it says what it lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from structured_server.decision_log import DecisionLog, Entry, KeyedHash, Selection, Sender, Store
from structured_server.decision_log.record import Record
from structured_server.decision_log.writer import DAY_S
from structured_server.errors import DecisionLogError
from structured_server.metrics import Metrics
from structured_server.wire.decide_rendering import About
from tests.shell.deciding import Deciding, query

LIMIT_S = 10.0


class Gated(Store):
    """A file that takes records only while its gate is open, and fails while it is told to."""

    gate = threading.Event()
    entered = threading.Event()
    fails = ""

    def add(self, records: Iterable[Record]) -> None:
        """Wait, then fail or write."""
        self.entered.set()
        assert self.gate.wait(LIMIT_S)
        if self.fails:
            raise DecisionLogError(self.fails)
        super().add(records)


@pytest.fixture
def store(tmp_path: Path) -> Gated:
    """A file whose gate is open."""
    store = Gated.open(str(tmp_path / "decisions.db"))
    store.gate, store.entered = threading.Event(), threading.Event()
    store.gate.set()
    return store


@pytest.fixture
async def entry() -> Entry:
    """A decision of one read, as it is handed over."""
    asked = query(state="502 on checkout")
    outcome = await Deciding().driver.decide(asked)
    about = About(identifier="dec_0", model="dgemma", backend="fake", model_revision=None)
    return Entry(time.time(), asked, outcome, about, Sender("/decide", "req_1", ""), {"customer": "1"})


def numbered(entry: Entry, number: int) -> Entry:
    """Return it under another id."""
    return replace(entry, about=entry.about | About(**{**entry.about, "identifier": f"dec_{number}"}))


def counted(metrics: Metrics) -> dict[str, float]:
    """Return how many entries came to what."""
    name = "structured_server_decision_log_records_total"
    outcomes = ("written", "queue_full", "failed")
    return {each: metrics.registry.get_sample_value(name, {"outcome": each}) or 0.0 for each in outcomes}


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_was_handed_over_is_there_after_closing(store: Gated, entry: Entry, tmp_path: Path) -> None:
    metrics = Metrics()
    log = DecisionLog(store, KeyedHash(), metrics)
    log.start()
    for number in range(1000):
        log.put(numbered(entry, number))
    log.close()
    assert {"written": 1000, "queue_full": 0, "failed": 0} == counted(metrics)
    left = Store.read(str(tmp_path / "decisions.db"))
    assert {f"dec_{number}" for number in range(1000)} == {each["id"] for each in left.select()}


def test_what_finds_no_room_is_dropped_at_once_and_counted(store: Gated, entry: Entry) -> None:
    metrics = Metrics()
    log = DecisionLog(store, KeyedHash(), metrics, most_waiting_bytes=10 * entry.weight)
    log.start()
    store.gate.clear()
    log.put(numbered(entry, 0))
    assert store.entered.wait(LIMIT_S)
    begun = time.monotonic()
    for number in range(1, 100):
        log.put(numbered(entry, number))
    assert time.monotonic() - begun < 1, "the disk stands still, who decides does not"
    assert 90 == counted(metrics)["queue_full"], "ten hold all the room, one of them being written"
    store.gate.set()
    wait_until(lambda: counted(metrics)["written"] == 10)
    log.put(numbered(entry, 200))
    wait_until(lambda: counted(metrics)["written"] == 11)
    log.close()


def test_one_entry_that_is_larger_than_all_room_is_still_taken(store: Gated, entry: Entry) -> None:
    metrics = Metrics()
    log = DecisionLog(store, KeyedHash(), metrics, most_waiting_bytes=1)
    log.start()
    log.put(entry)
    log.close()
    assert 1 == counted(metrics)["written"]


def test_a_disk_that_fails_is_told_once_and_its_records_are_counted(
    store: Gated, entry: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "structured_server")
    metrics = Metrics()
    log = DecisionLog(store, KeyedHash(), metrics)
    log.start()
    store.fails = "the disk is gone."
    for number in range(5):
        log.put(numbered(entry, number))
        wait_until(lambda number=number: counted(metrics)["failed"] == number + 1)  # type: ignore[misc]
    store.fails = ""
    log.put(numbered(entry, 5))
    log.close()
    assert {"written": 1, "queue_full": 0, "failed": 5} == counted(metrics)
    assert [
        "decisions are not recorded: the disk is gone.", "decisions are recorded again",
    ] == [record.getMessage() for record in caplog.records]  # fmt: skip


def test_records_that_are_too_old_are_deleted_at_the_start(
    store: Gated, entry: Entry, tmp_path: Path
) -> None:
    now = time.time()
    for age in (1, 29, 31, 300):
        store.add([Record(f"dec_{age}", now - age * DAY_S, "h", "{}", "{}")])
    log = DecisionLog(store, KeyedHash(), Metrics(), days=30)
    log.start()
    log.put(entry)
    log.close()
    left = Store.read(str(tmp_path / "decisions.db"))
    assert ["dec_29", "dec_1", "dec_0"] == [each["id"] for each in left.select()]
    assert 0 == sum(1 for _ in left.select(Selection(until=now - 30 * DAY_S)))
