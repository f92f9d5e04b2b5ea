"""What labelling a file would take: some of its first rows are asked, nothing is written."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from structured_server.bulk.asker import Failed, Refused
from structured_server.bulk.bodies import Renderer, Unusable, body_of
from structured_server.bulk.calling import Caller
from structured_server.bulk.errors import BadInput
from structured_server.bulk.pace import Pace
from structured_server.bulk.rows import Row
from structured_server.bulk.run import refuse_demo_model
from structured_server.bulk.work import Asking, Reporting

ASKED = 50
AMONG = 1000  # the first so many rows
TOO_LONG = "state_too_long"


def spread(rows: Iterable[Row], total: int) -> list[Row]:
    """Return at most `ASKED` rows at equal distances among the first `AMONG`."""
    among = min(total, AMONG)
    wanted = min(ASKED, among)
    chosen = {index * among // wanted for index in range(wanted)}
    found = []
    for index, row in enumerate(rows):
        if index in chosen:
            found.append(row)
        if len(found) == wanted:
            break
    return found


def estimate(
    rows: Iterable[Row],
    total: int,
    render: Renderer,
    asking: Asking,
    reporting: Reporting,
    *,
    price_per_hour: float | None,
    allow_demo_model: bool,
) -> dict[str, Any]:
    """Return rate (rows a second), seconds and cost for all rows, and shares of what was asked.

    Raises:
        BulkError: no row can be asked.
    """
    if not total:
        raise BadInput("there are no rows to ask about.")
    chosen = spread(rows, total)
    outcomes: Counter[str] = Counter()

    async def one(row: Row, caller: Caller) -> None:
        try:
            answer = await caller.call(body_of(row, render))
        except Unusable as error:
            outcomes[str(error).partition(":")[0]] += 1
        except (Refused, Failed) as error:
            outcomes[error.code] += 1
        else:
            if not allow_demo_model:
                refuse_demo_model(answer)
            outcomes["answered"] += 1
            outcomes["extended"] += bool(answer["reading"]["extended"])

    async def ask() -> float:
        async with asking.asker() as asker, asyncio.TaskGroup() as group:
            caller = Caller(asker, Pace(asking.concurrency), patience=asking.patience, notice=reporting.say)
            begun = time.monotonic()
            tasks = [group.create_task(one(row, caller)) for row in chosen]
            await asyncio.wait(tasks)
            return time.monotonic() - begun

    took = asyncio.run(_first_error(ask()))
    asked, answered = len(chosen), outcomes["answered"]
    rate = asked / took
    seconds = total / rate
    extended = outcomes.pop("extended")
    return {
        "rows": total,
        "asked": asked,
        "seconds_asking": took,
        "rows_per_second": rate,
        "seconds": seconds,
        "extended_share": extended / answered if answered else None,
        "too_long_share": outcomes[TOO_LONG] / asked,
        "errors": {code: count for code, count in outcomes.items() if code != "answered" and count},
        "price_per_hour": price_per_hour,
        "cost": None if price_per_hour is None else price_per_hour * seconds / 3600,
    }


async def _first_error(asking: Any) -> float:
    """Await, and raise the first of a group of errors alone."""
    try:
        took: float = await asking
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return took
