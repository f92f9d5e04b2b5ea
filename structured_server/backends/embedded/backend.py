"""The embedded backend: reads in this process, in a thread of its own so that the event loop never waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from structured_server.backends import NotReady, ReadsOnly, Step
from structured_server.backends.embedded.graph import Graph
from structured_server.backends.embedded.model import load_demo_model
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, Read, ReadRequest, Row, checked
from structured_server.core.tokens import Tokenizer
from structured_server.errors import UpstreamError, UpstreamRejected, UpstreamUnreachable
from structured_server.settings import WIDEST_EMBEDDED, WIDTH_STEP
from structured_server.tokenizer import load_tokenizer

MAX_MODEL_LEN = 6144

T = TypeVar("T")


class EmbeddedBackend(ReadsOnly):
    """Reads by one ONNX graph, one batch after the other. Draws of one prompt are one run."""

    name = "embedded"

    def __init__(
        self, weights: Path, *, tokenizer: Tokenizer, canvas: int = WIDEST_EMBEDDED, threads: int = 2
    ) -> None:
        self.capabilities = Capabilities(
            tuple(range(WIDTH_STEP, canvas + 1, WIDTH_STEP)), None, MAX_MODEL_LEN
        )
        self._weights = weights
        self._tokenizer = tokenizer
        self._threads = threads
        self._graph: Graph | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="embedded")

    @classmethod
    def packaged(cls) -> EmbeddedBackend:
        """Return a backend that reads with the model and the tokenizer in this package."""
        demo = load_demo_model()
        return cls(demo.weights, tokenizer=load_tokenizer(str(demo.folder)))

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Read, after the batches that came before.

        Raises:
            UpstreamError: the model is not loaded, cannot hold a read, or failed on it.
        """
        graph = self._graph
        if graph is None:
            raise UpstreamUnreachable("the embedded model is not loaded.")
        for request in batch:
            length = len(request.prompt.ids) + request.width
            if not request.prompt.ids or length > MAX_MODEL_LEN:
                raise UpstreamRejected(
                    f"a prompt of {len(request.prompt.ids)} tokens and a canvas of {request.width} cannot be "
                    f"read: the prompt needs at least 1, both together at most {MAX_MODEL_LEN}."
                )
        return await self._in_worker(lambda: _read(graph, batch))

    async def prepare(self) -> AsyncIterator[Step]:
        """Load the weights, hold the vocabularies against each other, and read once.

        Raises:
            NotReady: the weights do not load, are not this tokenizer's, or do not read.
        """
        yield Step("weights", "the embedded model to load")
        graph = await self._in_worker(lambda: Graph(self._weights, threads=self._threads))
        yield Step("tokenizer", "the tokenizer to be the model's")
        if self._tokenizer.vocabulary_size != graph.vocabulary:
            raise NotReady(
                f"the tokenizer has {self._tokenizer.vocabulary_size} ids, the model {graph.vocabulary}: "
                "they do not belong together."
            )
        self._graph = graph
        yield Step("warm_up", "the first read")
        noise = tuple(self._tokenizer.noise_ids[: self.capabilities.widths[-1]])
        request = ReadRequest(Prompt(noise), noise, positions=(0,), label_ids=noise[:1])
        try:
            (read,) = await self.read([request])
            checked(request, read)
        except UpstreamError as error:
            raise NotReady(f"a first read failed: {error.message}") from None

    async def watch(self) -> str:
        """Wait for ever: a model in this process is not lost before the process is."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        """Drop the reads that wait, and end the thread after the one that runs."""
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)

    async def _in_worker(self, work: Callable[[], T]) -> T:
        try:
            task = asyncio.get_running_loop().run_in_executor(self._worker, work)
        except RuntimeError:
            raise UpstreamUnreachable("the embedded model is closed.") from None
        return await task


def _read(graph: Graph, batch: Sequence[ReadRequest]) -> list[Read]:
    """Make one run of each succession of reads that differ in their canvas's ids only."""
    reads: list[Read] = []
    for _, alike in groupby(batch, lambda each: (each.prompt.ids, each.width, each.positions)):
        requests = list(alike)
        prompt = requests[0].prompt.ids
        canvases = [request.canvas for request in requests]
        logprobs, cached = graph.read(prompt, canvases, requests[0].positions)
        for request, rows in zip(requests, logprobs, strict=True):
            tops = rows.argmax(axis=1).tolist()
            wanted = rows[:, request.label_ids].tolist()
            found = (
                Row(dict(zip(request.label_ids, values, strict=True)), top)
                for values, top in zip(wanted, tops, strict=True)
            )
            reads.append(Read(tuple(found), len(prompt), cached))
            cached = len(prompt)  # the other draws share the first one's prompt
    return reads
