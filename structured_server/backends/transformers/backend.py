"""The transformers backend: reads by a model in this process, and what makes it ready or lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from structured_server.backends import NotReady, ReadsOnly, Step
from structured_server.backends.transformers.batching import Worker, in_thread
from structured_server.backends.transformers.checkpoint import DTYPES, Checkpoint, find_checkpoint
from structured_server.backends.transformers.memory import free_memory
from structured_server.backends.transformers.model import Model, Packages, choose_device, import_packages
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, Read, ReadRequest, checked
from structured_server.core.tokens import Kind, Segment, Tokenizer
from structured_server.errors import SettingsError, UpstreamError, UpstreamRejected, UpstreamUnreachable
from structured_server.settings import WIDTH_STEP

RELOAD_S = 5.0
"""How long to wait before loading is tried again: it may mean gigabytes, or a request to the hub."""

HEADROOM = 256 * 2**20
"""Bytes needed beside the weights and a tenth of them: activations, logits, the prompts that are kept."""

Load = Callable[[Packages, Checkpoint, Any, str], Model]
FreeMemory = Callable[[Any, Any], int | None]


class TransformersBackend(ReadsOnly):
    """Reads by DiffusionGemma in this process. One thread reads, those of one prompt and width together."""

    name = "transformers"

    def __init__(
        self,
        source: str,
        *,
        tokenizer: Tokenizer,
        canvas: int,
        device: str = "auto",
        dtype: str = "auto",
        revision: str | None = None,
        load: Load = Model.load,
        free_memory: FreeMemory = free_memory,
    ) -> None:
        """Name a model by folder or hub id; nothing is loaded yet.

        `device` is auto, cpu, cuda or cuda:N; `dtype` is auto (as the weights were saved) or one of DTYPES.
        `free_memory` tells the bytes that are free, from torch and a torch device.

        Raises:
            SettingsError: there is no such device or type.
        """
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise SettingsError(f"--device must be auto, cpu, cuda or cuda:N, got {device!r}.")
        if dtype not in ("auto", *DTYPES):
            raise SettingsError(f"--dtype must be auto or one of {', '.join(DTYPES)}, got {dtype!r}.")
        self._source = source
        self._revision = revision
        self._tokenizer = tokenizer
        self._canvas = canvas
        self._device = device
        self._dtype = dtype
        self._load = load
        self._free_memory = free_memory
        self._capabilities = Capabilities(tuple(range(WIDTH_STEP, canvas + 1, WIDTH_STEP)), None, None)
        self._worker: Worker[ReadRequest, Read] | None = None
        self._vocabulary = 0
        self._failed = False

    @property
    def capabilities(self) -> Capabilities:
        """All widths, any number of label ids, and the context that the model was made for."""
        return self._capabilities

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Put the reads in line together and wait for them.

        Raises:
            UpstreamError: a read failed; those that have not begun are dropped.
        """
        if self._worker is None:
            raise UpstreamUnreachable("the model is not loaded.")
        for request in batch:
            self._refuse_nonsense(request)
        futures = self._worker.submit(batch)
        try:
            return [await asyncio.wrap_future(future) for future in futures]
        finally:
            for future in futures:
                future.cancel()

    async def prepare(self) -> AsyncIterator[Step]:
        """Import the packages, load the weights, check the tokenizer against them and make one read.

        Raises:
            NotReady: one of them is not as it must be.
        """
        yield Step("packages", "torch and transformers to be imported")
        packages = await in_thread(import_packages)
        yield Step("weights", f"the weights of {self._source} to be loaded")
        if self._worker is None:
            await self._load_weights(packages)
        elif self._worker.ended is not None:
            raise NotReady(self._worker.ended)
        yield Step("tokenizer", "the tokenizer's ids to lie within the model's vocabulary")
        self._check_tokenizer()
        yield Step("warm_up", f"the first read of the widest canvas ({self._canvas} tokens)")
        await self._warm_up()

    async def watch(self) -> str:
        """Return once the thread that reads has ended, which it does only if the device fails."""
        return "the model is not loaded." if self._worker is None else await self._worker.lost()

    async def close(self) -> None:
        """End the thread that reads and let go of the model."""
        if self._worker is not None:
            await self._worker.close()
            self._worker = None

    async def _load_weights(self, packages: Packages) -> None:
        if self._failed:
            await asyncio.sleep(RELOAD_S)
        self._failed = True
        checkpoint = await in_thread(lambda: find_checkpoint(self._source, self._revision))
        model = await in_thread(lambda: self._load_checkpoint(packages, checkpoint))
        self._vocabulary = model.vocabulary_size
        self._capabilities = Capabilities(self._capabilities.widths, None, checkpoint.max_model_len)
        self._worker = Worker(model.read, lambda request: (request.width, request.prompt.ids))
        self._failed = False

    def _load_checkpoint(self, packages: Packages, checkpoint: Checkpoint) -> Model:
        if checkpoint.canvas is not None and checkpoint.canvas < self._canvas:
            raise NotReady(
                f"the model's canvas is {checkpoint.canvas} tokens and this server was started with "
                f"--canvas {self._canvas}: start it with --canvas {checkpoint.canvas}."
            )
        dtype = checkpoint.dtype if self._dtype == "auto" else self._dtype
        if dtype not in DTYPES:
            raise NotReady(f"the weights are {dtype}: choose one of --dtype {', '.join(DTYPES)}.")
        device = choose_device(packages.torch, self._device)
        needed = int(1.1 * checkpoint.bytes_as(dtype)) + HEADROOM
        free = self._free_memory(packages.torch, device)
        if free is not None and free < needed:
            raise NotReady(
                f"{self._source} needs about {_gib(needed)} in {dtype} and {device} has {_gib(free)} free: "
                + ("use --dtype bfloat16, or " if dtype == "float32" else "")
                + "free some memory, or choose another --device."
            )
        return self._load(packages, checkpoint, device, dtype)

    def _check_tokenizer(self) -> None:
        tokenizer = self._tokenizer
        largest = max(
            tokenizer.noise_ids[-1],
            tokenizer.turn_close,
            tokenizer.padding,
            tokenizer.mask or 0,
            *tokenizer.scaffold,
        )
        if largest >= self._vocabulary:
            raise NotReady(
                f"this server's tokenizer has ids up to {largest}, the model only {self._vocabulary} "
                "entries. Set --tokenizer to the model's own."
            )

    async def _warm_up(self) -> None:
        tokenizer = self._tokenizer
        segments = (
            Segment(Kind.CONTROL, tokenizer.chat.start_user),
            Segment(Kind.TEXT, "Is this a question?"),
            Segment(Kind.CONTROL, tokenizer.chat.end),
        )
        request = ReadRequest(
            Prompt(tokenizer.encode_prompt(segments), segments),
            (tokenizer.padding,) * (self._canvas - 1) + (tokenizer.noise_ids[0],),
            (self._canvas - 1,),
            (tokenizer.noise_ids[-1],),
        )
        try:
            checked(request, *await self.read([request]))
        except UpstreamError as error:
            raise NotReady(f"a read of {self._canvas} tokens failed: {error.message}") from None

    def _refuse_nonsense(self, request: ReadRequest) -> None:
        """Refuse what torch would answer with an error, or a GPU with its end.

        Raises:
            UpstreamRejected: an id that the model does not know, or more tokens than it was made for.
        """
        largest = max((*request.prompt.ids, *request.canvas, *request.label_ids), default=0)
        if largest >= self._vocabulary:
            raise UpstreamRejected(f"the model's vocabulary of {self._vocabulary} has no id {largest}.")
        length = self._capabilities.max_model_len
        if length is not None and len(request.prompt.ids) + request.width > length:
            raise UpstreamRejected(
                f"prompt ({len(request.prompt.ids)} tokens) and canvas ({request.width}) pass the model's "
                f"limit {length}."
            )


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
