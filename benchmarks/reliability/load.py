"""Sending requests over HTTP: at set times whatever comes back, or so many at a time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

Body = dict[str, Any]

LOST_S = 60.0
"""A reply that has not come by then is lost."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one request. `status` is None where the connection broke or nothing came back."""

    number: int
    asked: Body
    status: int | None
    content: bytes
    sent: float  # seconds since the load began
    seconds: float  # from sending to the last byte
    lag: float = 0.0  # seconds from when it was due to when it was sent
    problem: str = ""

    @property
    def said(self) -> Any:
        """The body, None where it is no JSON."""
        try:
            return orjson.loads(self.content)
        except orjson.JSONDecodeError:
            return None

    @property
    def code(self) -> str:
        """`ok`, the code of a typed error, `dropped`, or `untyped`."""
        if self.status is None:
            return "dropped"
        if self.status == 200:
            return "ok"
        said = self.said
        error = said.get("error") if isinstance(said, dict) else None
        return str(error["code"]) if isinstance(error, dict) and "code" in error else "untyped"

    @property
    def end(self) -> float:
        """When it was all there, in seconds since the load began."""
        return self.sent + self.seconds


class Sender:
    """Sends decisions to one server, over as many connections as it takes."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._since = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self._since

    async def send(self, number: int, asked: Body, due: float | None = None) -> Reply:
        """Send one request, and say what became of it."""
        sent = self.now
        lag = 0.0 if due is None else sent - due
        try:
            async with self._session.post(self._url, data=orjson.dumps(asked)) as response:
                content = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return Reply(number, asked, None, b"", sent, self.now - sent, lag, type(error).__name__)
        return Reply(number, asked, response.status, content, sent, self.now - sent, lag)

    async def open_loop(
        self,
        rate: float,
        seconds: float,
        make: Callable[[int], Body],
        seen: Callable[[Reply], None],
        seed: int,
    ) -> int:
        """Send at random times, on average `rate` a second, whatever comes back, and return how many.

        Arrivals are a Poisson process: a server that slows down is not spared.
        """
        chance = random.Random(seed)
        sending: set[asyncio.Task[Reply]] = set()
        due, number = self.now, 0
        end = due + seconds

        def done(task: asyncio.Task[Reply]) -> None:
            sending.discard(task)
            seen(task.result())

        while (due := due + chance.expovariate(rate)) < end:
            await asyncio.sleep(due - self.now)
            task = asyncio.create_task(self.send(number, make(number), due))
            sending.add(task)
            task.add_done_callback(done)
            number += 1
        while sending:
            await asyncio.wait(sending)
        return number

    async def closed_loop(self, asked: Iterable[tuple[int, Body]], at_once: int) -> list[Reply]:
        """Send all of them, so many at a time."""
        waiting, replies = iter(asked), list[Reply]()

        async def work() -> None:
            for number, body in waiting:
                replies.append(await self.send(number, body))

        await asyncio.gather(*(work() for _ in range(at_once)))
        return replies


@asynccontextmanager
async def sending(url: str, path: str = "/decide", key: str = "") -> AsyncIterator[Sender]:
    """Open connections to a server, and close them afterwards. An API key is sent with every request."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=LOST_S)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        yield Sender(session, url + path)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share of the values does not pass; nan without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
