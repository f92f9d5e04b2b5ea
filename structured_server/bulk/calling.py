"""Asking until there is an answer: which failures are waited out, are the row's, or end the run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from structured_server.bulk.asker import Asker, Body, Busy, Denied, Failed, Refused, Unreachable
from structured_server.bulk.errors import BadInput, KeyRefused, ServerFailed
from structured_server.bulk.pace import Pace

ATTEMPTS = 4
"""How often one request may fail in the server before its row is an error."""

FAILED_IN_A_ROW = 10
"""Rows that may fail so, one after another without an answer in between, before the run stops."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 15.0
NOBODY_THERE_S = 10.0  # before the first answer: a wrong URL shall not take minutes to notice

_NOT_THE_ROW = ("questions", "read", "model", "deadline_ms")
_NEVER_THE_ROW = ("not_found", "unknown_model", "method_not_allowed", "unsupported_encoding")


class Caller:
    """Asks through a pace. `patience`: seconds without any answer after which the run stops."""

    def __init__(
        self, asker: Asker, pace: Pace, *, patience: float, notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self._asker = asker
        self._pace = pace
        self._patience = patience
        self._notice = notice
        self._trouble_since: float | None = None
        self._failed_in_a_row = 0
        self._answered = False

    async def call(self, body: Body) -> Body:
        """Return the answer.

        Raises:
            Refused: the row is wrong.
            Failed: the server failed on it several times.
            BulkError: no row can be asked.
        """
        failures = 0
        wait = FIRST_WAIT_S
        while True:
            entered = await self._pace.enter()
            try:
                answer = await self._asker.ask(body)
            except Busy as busy:
                asked_for = wait if busy.retry_after is None else busy.retry_after
                self._out_of_patience(str(busy), asked_for, self._patience)
                self._pace.busy(entered, asked_for)
            except Unreachable as error:
                patience = self._patience if self._answered else min(NOBODY_THERE_S, self._patience)
                wait = _jittered(wait)
                self._out_of_patience(str(error), wait, patience)
                self._pace.busy(entered, wait)
            except Failed as failed:
                failures += 1
                self._pace.busy(entered, 0.0)
                if failures == ATTEMPTS:
                    self._count_failed(failed)
                    raise
                await asyncio.sleep(_jittered(wait))  # in its place: rows behind it shall not all fail first
            except Refused as refused:
                self._is_well()
                if refused.code in _NEVER_THE_ROW or (refused.path[:1] and refused.path[0] in _NOT_THE_ROW):
                    raise BadInput(f"the server refuses every row alike: {refused}") from None
                raise
            except Denied as denied:
                raise KeyRefused(f"{denied} Use --token.") from None
            else:
                self._is_well()
                self._answered = True
                self._pace.good()
                return answer
            finally:
                self._pace.leave()
            wait = min(2 * wait, LONGEST_WAIT_S)

    def _is_well(self) -> None:
        self._trouble_since = None
        self._failed_in_a_row = 0

    def _out_of_patience(self, message: str, wait: float, patience: float) -> None:
        now = asyncio.get_running_loop().time()
        if self._trouble_since is None:
            self._trouble_since = now
            self._notice(f"{message} Trying again for up to {patience:g} s.")
        if now + wait - self._trouble_since > patience:
            later = f" It asks to come back in {wait:.0f} s." if wait > patience else ""
            raise ServerFailed(f"no answer for {patience:g} s (--retry-for): {message}{later}")

    def _count_failed(self, failed: Failed) -> None:
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= FAILED_IN_A_ROW:
            raise ServerFailed(
                f"{FAILED_IN_A_ROW} rows failed one after another, {ATTEMPTS} times each: {failed}"
            ) from None


def _jittered(wait: float) -> float:
    return wait * random.uniform(0.5, 1.0)  # noqa: S311  it spreads clients out, no secret hangs on it
