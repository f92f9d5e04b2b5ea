"""The writer: a thread of its own behind a bounded queue. What finds no room there is dropped and counted."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from structured_server.decision_log.hashing import KeyedHash
from structured_server.decision_log.record import Entry, record_of
from structured_server.decision_log.store import Selection, Store
from structured_server.errors import DecisionLogError
from structured_server.metrics import Metrics

MOST_WAITING_BYTES = 32 * 1024 * 1024
"""Of entries that wait, by their own estimate: some 4,000 decisions of one read."""

MOST_AT_ONCE = 256
GATHER_S = 0.1
"""How long the first of several entries waits for others: one write for all of them costs a third."""

RETENTION_EVERY_S = 3600.0
LAST_WORDS_S = 5.0
DAY_S = 86_400

log = logging.getLogger(__name__)


class DecisionLog:
    """Records decisions. `put` costs the caller next to nothing; a thread does the rest."""

    def __init__(
        self,
        store: Store,
        keyed: KeyedHash,
        metrics: Metrics,
        *,
        with_state: bool = False,
        days: int = 0,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        """Keep records in `store` for so many days, 0 for ever."""
        self._store = store
        self._keyed = keyed
        self._with_state = with_state
        self._days = days
        self._most_waiting = most_waiting_bytes
        self._written = metrics.decision_log_records.labels("written")
        self._no_room = metrics.decision_log_records.labels("queue_full")
        self._failed = metrics.decision_log_records.labels("failed")
        self._waiting: deque[Entry] = deque()
        self._weight = 0
        self._changed = threading.Condition()
        self._ending = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="decision-log", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, entry: Entry) -> None:
        """Have a decision recorded, or drop it where too much waits already. Never blocks for long."""
        weight = entry.weight
        with self._changed:
            if self._weight + weight > self._most_waiting and self._waiting:
                self._no_room.inc()
                return
            self._waiting.append(entry)
            self._weight += weight
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, as far as that takes no longer than five seconds, and close the file."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(LAST_WORDS_S)

    def _run(self) -> None:
        next_look = 0.0
        while True:
            if time.monotonic() >= next_look:
                self._retain()
                next_look = time.monotonic() + RETENTION_EVERY_S
            with self._changed:
                if not self._waiting and not self._ending:
                    self._changed.wait(next_look - time.monotonic())
                if len(self._waiting) < MOST_AT_ONCE:
                    self._changed.wait_for(lambda: self._ending, GATHER_S)
                entries = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
                done = self._ending and not entries
            if done:
                self._store.close()
                return
            if entries:
                self._write(entries)
                with self._changed:
                    self._weight -= sum(entry.weight for entry in entries)

    def _write(self, entries: list[Entry]) -> None:
        try:
            self._store.add([record_of(entry, self._keyed, with_state=self._with_state) for entry in entries])
        except Exception as error:  # of whatever kind: the next ones may go in again
            self._failed.inc(len(entries))
            self._report(error.message if isinstance(error, DecisionLogError) else type(error).__name__)
            return
        self._written.inc(len(entries))
        self._report("")

    def _retain(self) -> None:
        """Delete what is too old."""
        if not self._days:
            return
        try:
            gone = self._store.delete(Selection(until=time.time() - self._days * DAY_S))
        except DecisionLogError as error:
            self._report(error.message)
            return
        if gone:
            log.info("decision log: records of more than %d days deleted", self._days)

    def _report(self, problem: str) -> None:
        """Say when writing begins to fail, and when it works again."""
        if problem and problem != self._problem:
            log.error("decisions are not recorded: %s", problem)
        elif self._problem and not problem:
            log.warning("decisions are recorded again")
        self._problem = problem
