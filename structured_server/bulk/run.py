"""A run over rows: asked many at once, written in the input's order, with a bounded number under way."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

from structured_server.bulk.asker import Body, Failed, Refused
from structured_server.bulk.bodies import Renderer, Unusable, body_of
from structured_server.bulk.calling import Caller
from structured_server.bulk.earlier import Earlier
from structured_server.bulk.errors import BadInput, OtherNumbers, ServerFailed
from structured_server.bulk.files import Places
from structured_server.bulk.flat import FAILED, STATUS, Flat, Questions, failed, flatten
from structured_server.bulk.lines import Lines
from structured_server.bulk.manifest import Manifest
from structured_server.bulk.output import Output
from structured_server.bulk.rows import Row
from structured_server.bulk.sharing import Sharing

PROBES = 5  # rows that are asked before anything is written, until one has an answer
GRACE_S = 2.0  # what is under way when a run is stopped has so long to come in
OUTSIDE_DEMO = "outside_demo_domain"


@dataclass(frozen=True, slots=True)
class Done:
    """A row with its line, whatever became of it. `record` has the columns that are counted."""

    row: Row
    line: bytes
    status: str
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked about each row and how it is written."""

    questions: Questions
    prefix: str
    render: Renderer
    lines: Lines
    allow_mixed: bool = False
    allow_demo_model: bool = False


class Run:
    """One run. `on_row` is told of each row once it is written; `earlier` has rows that need not be asked.

    `manifest` is saved where it learns something, before the rows that this is about are written.
    """

    def __init__(
        self,
        job: Job,
        caller: Caller,
        output: Output,
        manifest: Manifest,
        places: Places,
        on_row: Callable[[Done], None],
        earlier: Earlier | None,
        window: int,
    ) -> None:
        self.manifest = manifest
        self._job = job
        self._caller = caller
        self._output = output
        self._places = places
        self._window = window
        self._earlier = earlier
        self._on_row = on_row
        self._sharing: Sharing[Flat] = Sharing()

    async def go(self, rows: Iterator[Row]) -> None:
        """Ask and write all rows; what is written when it raises is whole.

        Raises:
            BulkError: no row can be asked, or the answers are not those of the output's other rows.
        """
        ahead = list(islice(rows, self._window))
        await self._probe(ahead)
        pending: deque[asyncio.Task[Done]] = deque()
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def watch(task: asyncio.Task[Done]) -> None:
            if not task.cancelled() and task.exception() and not stopped.done():
                stopped.set_result(None)

        try:
            for row in chain(ahead, rows):
                task = asyncio.create_task(self._done(row))
                task.add_done_callback(watch)
                pending.append(task)
                while len(pending) >= self._window or (pending and pending[0].done()):
                    await self._put_first(pending, stopped)
            while pending:
                await self._put_first(pending, stopped)
        finally:
            if pending:
                await self._let_in(pending)

    async def _probe(self, ahead: Iterable[Row]) -> None:
        """Learn who answers before anything is written; the answer is kept for its row."""
        asked = 0
        for row in ahead:
            if asked == PROBES or self._known(row) is not None:
                continue
            try:
                body = body_of(row, self._job.render)
                asked += 1
                await self._ask(body)
            except (Unusable, Refused, Failed):
                continue
            return

    async def _put_first(self, pending: deque[asyncio.Task[Done]], stopped: asyncio.Future[None]) -> None:
        first = pending[0]
        await asyncio.wait((first, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            raise next(error for task in pending if task.done() and (error := task.exception()))
        self._put(pending.popleft().result())

    async def _let_in(self, pending: deque[asyncio.Task[Done]]) -> None:
        """Write what comes in soon and in order, and give the rest up."""
        with suppress(asyncio.CancelledError):  # asked to stop once more
            await asyncio.wait(pending, timeout=GRACE_S)
        while pending and pending[0].done() and not pending[0].cancelled() and not pending[0].exception():
            self._put(pending.popleft().result())
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _put(self, done: Done) -> None:
        self._output.put(done.row.digest, done.line, done.status)
        self._on_row(done)

    async def _done(self, row: Row) -> Done:
        if (known := self._known(row)) is not None:
            line, status = known
            return Done(row, line, status, self._job.lines.read(line))
        job = self._job
        try:
            flat = await self._ask(body_of(row, self._job.render))
        except (Refused, Failed) as error:
            flat = failed(f"{error.code}: {error}", job.questions, job.prefix)
        except Unusable as error:
            flat = failed(str(error), job.questions, job.prefix)
        return Done(row, job.lines.line(row, flat), flat[job.prefix + STATUS], {**row.fields, **flat})

    def _known(self, row: Row) -> tuple[bytes, str] | None:
        """Return what an earlier output has of a row; errors are asked again."""
        found = self._earlier.find(row.digest) if self._earlier else None
        return None if found is None or found[1] == FAILED else found

    async def _ask(self, body: Body) -> Flat:
        key = blake2b(json.dumps(body).encode(), digest_size=16).digest()

        async def make() -> Flat:
            answer = await self._caller.call(body)
            try:
                flat = flatten(answer, self._job.questions, self._job.prefix)
                self._check(answer)
            except (KeyError, TypeError, ValueError) as error:
                raise ServerFailed(f"an answer is not as a structured-server's: {error!r}.") from None
            return flat

        return await self._sharing.get(key, make)

    def _check(self, answer: Mapping[str, Any]) -> None:
        """See to it that an answer may stand in this output.

        Raises:
            BulkError: it may not.
        """
        if not self._job.allow_demo_model:
            refuse_demo_model(answer)
        provenance = answer["provenance"]
        fingerprint = str(provenance["fingerprint"])
        if fingerprint in self.manifest.fingerprints:
            return
        if self.manifest.fingerprints and not self._job.allow_mixed:
            raise OtherNumbers(
                f"the server's fingerprint is {fingerprint}, the output's rows have "
                f"{', '.join(self.manifest.fingerprints)}: its model, settings or questions have changed, "
                "and numbers are not comparable. Go on with --allow-mixed, or start anew with --overwrite."
            )
        self.manifest = self.manifest.learn(provenance, str(answer["model"]))
        self.manifest.save(self._places.manifest)


def refuse_demo_model(answer: Mapping[str, Any]) -> None:
    """Stop where the embedded demo model was asked what it was never taught.

    Raises:
        BadInput: it was.
    """
    outside = [each["question"] for each in answer["warnings"] if each["code"] == OUTSIDE_DEMO]
    if outside:
        raise BadInput(
            f"the server runs the embedded demo model, which was never taught {', '.join(outside)}: its "
            "answers mean nothing. Ask a server with another model, or go on with --allow-demo-model."
        )
