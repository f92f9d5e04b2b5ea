"""`POST /decide/batch`: one question set over many states, answered line by line in their order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from structured_server.admission import Lane
from structured_server.api.bodies import read_body, unless_gone
from structured_server.api.errors import InternalError
from structured_server.api.query import named, query_of, sender_of
from structured_server.api.service import Service
from structured_server.decision_log import Sender
from structured_server.driver import Outcome, Query
from structured_server.errors import DeadlineExceeded, Overloaded, StructuredServerError, Unavailable, let_go
from structured_server.jobs import extensions_allowed
from structured_server.wire.batch import (
    LINE_TYPES,
    MEDIA_TYPE,
    WAITING_LINE,
    Batch,
    Item,
    decided_line,
    end_line,
    failed_line,
    header_line,
    parse_batch,
    parse_lines,
)
from structured_server.wire.decide_rendering import render

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a batch goes forward: half of the default permits, so that others get theirs."""

    in_flight: int = 8  # items that are being decided, or wait for their line's turn
    keep_alive_s: float = 5.0
    pause_s: float = 0.1  # before an item that found the queue full asks again


DEFAULT_PACE = Pace()


async def decide_batch(request: Request, service: Service, pace: Pace = DEFAULT_PACE) -> Response:
    """Answer one batch. What is wrong with the whole of it is refused before the first line.

    Raises:
        ClientDisconnect: the sender left.
        StructuredServerError: each has a status in `api.errors`.
    """
    batch = _parse(request, await read_body(request, service.settings.max_body_bytes))
    query = replace(query_of(batch.asked, service, ""), cache_salt=request.state.cache_salt)
    service.readiness.require()
    compiled = await service.driver.compiled(query)
    extensions_allowed(compiled.frame, query.policy)
    header = header_line(
        model=service.model,
        fingerprint=service.driver.fingerprint_carried(compiled, query.policy),
        question_set=compiled.question_set,
        items=len(batch.items),
    )
    run = _Run(service, query, pace, sender_of(request))
    request.state.log_fields = run.tally
    return _Lines(run.lines(header, batch.items), run.tally)


def _parse(request: Request, body: bytes) -> Batch:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return parse_lines(body) if media_type in LINE_TYPES else parse_batch(body)


class _Run:
    """The items of one batch on their way."""

    def __init__(self, service: Service, query: Query, pace: Pace, sender: Sender) -> None:
        self._service = service
        self._query = query
        self._pace = pace
        self._sender = sender
        self._lane = Lane(sender.key, batch=True)
        self.tally: dict[str, int | bool] = {"ok": 0, "failed": 0}

    async def lines(self, header: dict[str, Any], items: tuple[Item, ...]) -> AsyncGenerator[bytes, None]:
        """Yield all lines. Closing the generator cancels what is in flight."""
        yield _line(header)
        window: deque[asyncio.Task[bytes]] = deque()
        to_come = iter(items)
        try:
            while True:
                # The next item starts when a line was taken: a slow reader slows the batch down.
                while len(window) < self._pace.in_flight and (item := next(to_come, None)) is not None:
                    window.append(asyncio.create_task(self._answer(item)))
                if not window:
                    break
                while not (await asyncio.wait((window[0],), timeout=self._pace.keep_alive_s))[0]:
                    yield _line(WAITING_LINE)
                yield window.popleft().result()
        finally:
            for task in window:
                task.cancel()
            if window:
                await asyncio.wait(window)
        yield _line(end_line(ok=self.tally["ok"], failed=self.tally["failed"]))

    async def _answer(self, item: Item) -> bytes:
        """Return an item's line, whatever comes of it."""
        try:
            query = replace(self._query, state=item.state)
            outcome = await self._decide(query)
            about = named(query, outcome, self._service, self._sender, {}, item.names)
            line = _line(decided_line(item, render(outcome, **about, metadata={})))
        except StructuredServerError as error:
            if isinstance(error, Unavailable):
                self._service.metrics.refused.labels(error.code).inc()
            let_go(error)
            return self._failed(item, error)
        except Exception:
            fields = {"request_id": self._sender.request_id, "item": item.index}
            log.exception("unforeseen error", extra={"fields": fields})
            message = "something went wrong here; the log has it under this request's id."
            return self._failed(item, InternalError(message))
        self.tally["ok"] += 1
        return line

    async def _decide(self, query: Query) -> Outcome:
        """Decide; ask again until the deadline where the queue is full."""
        now = asyncio.get_running_loop().time
        begun, waited = now(), 0.0  # at first exactly the query: equal ones in flight share their reads
        while True:
            self._service.readiness.require()
            try:
                outcome = await self._service.driver.decide(
                    replace(query, deadline_s=max(0.0, query.deadline_s - waited)), self._lane
                )
            except Overloaded:
                if now() - begun + self._pace.pause_s >= query.deadline_s:
                    raise
                await asyncio.sleep(self._pace.pause_s)
                waited = now() - begun
            except DeadlineExceeded as error:
                raise (_late(query, waited, error.hint) if waited else error) from None
            else:
                return _after(waited, outcome)

    def _failed(self, item: Item, error: StructuredServerError) -> bytes:
        self.tally["failed"] += 1
        return _line(failed_line(item, error, self._sender.request_id))


class _Lines(StreamingResponse):
    """Sends lines as they come, and closes their generator when their reader leaves."""

    def __init__(self, lines: AsyncGenerator[bytes, None], tally: dict[str, int | bool]) -> None:
        # The header asks proxies (nginx) to pass each line on at once.
        super().__init__(lines, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
        self._lines = lines
        self._tally = tally

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whose body has been read."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await unless_gone(Request(scope, receive), self._send_lines(send))
        except (ClientDisconnect, OSError):  # servers tell it in either way
            self._tally["left"] = True
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_lines(self, send: Send) -> None:
        async with aclosing(self._lines):
            async for line in self._lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})


def _late(query: Query, waited: float, hint: str | None) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"no answer within the deadline of {1000 * query.deadline_s:.0f} ms; the queue was full for "
        f"{1000 * waited:.0f} of them.",
        hint=hint,
    )


def _after(waited: float, outcome: Outcome) -> Outcome:
    """Add the seconds before the queue had room to what the last attempt measured."""
    milliseconds = 1000 * waited
    return replace(
        outcome, queue_ms=outcome.queue_ms + milliseconds, total_ms=outcome.total_ms + milliseconds
    )


def _line(content: dict[str, Any]) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
