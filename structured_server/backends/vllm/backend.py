"""The vLLM backend: reads as requests in parallel, and what makes it ready or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from structured_server.backends import NotReady, Step
from structured_server.backends.vllm import probe
from structured_server.backends.vllm.client import Client
from structured_server.backends.vllm.messages import (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    chat_body,
    completion_body,
    parse_chat,
    parse_completion,
)
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Read, ReadRequest
from structured_server.core.tokens import Tokenizer
from structured_server.errors import UpstreamError, UpstreamProtocolError
from structured_server.parallel import together
from structured_server.settings import PromptTransport

WIDTH_STEP = 16
MAX_LABEL_IDS = 128  # vLLM's own limit on logprob_token_ids
POLL_S = 1.0


class EngineTokenizer(Tokenizer, Protocol):
    """A tokenizer that can be compared with the engine's and can defuse text for it."""

    def encode_like_engine(self, text: str) -> Sequence[int]:
        """Return the ids that the engine's own tokenizer gives, control tokens recognised."""

    def neutralise(self, text: str) -> str:
        """Return the text with every control token's spelling broken."""


class VllmBackend:
    """Reads by one vLLM server.

    Until each width has been read once, reads are made at the widest canvas, which `prepare` warms: the first
    read of a new width can take minutes.
    """

    name = "vllm"

    def __init__(
        self,
        url: str,
        *,
        model: str,
        tokenizer: EngineTokenizer,
        canvas: int,
        transport: PromptTransport = "completions",
        read_timeout_s: float = 30.0,
    ) -> None:
        self.model = model
        self._tokenizer = tokenizer
        self._canvas = canvas
        self._transport = transport
        self._client = Client(url, timeout_s=read_timeout_s)
        self._capabilities = Capabilities((canvas,), MAX_LABEL_IDS, None)
        self._lost = asyncio.Event()

    @property
    def capabilities(self) -> Capabilities:
        """The widths that are warm, vLLM's id cap, and the context that the engine reports."""
        return self._capabilities

    async def read(self, batch: Sequence[ReadRequest]) -> list[Read]:
        """Send one request a read, all at once.

        Raises:
            UpstreamError: a read failed; the others are cancelled.
        """
        return await together([self._read_one(request) for request in batch])

    async def prepare(self) -> AsyncIterator[Step]:
        """Check the engine, its model, tokenizer, contract and widest canvas.

        Raises:
            NotReady: one of them is not as it must be.
        """
        self._lost.clear()
        url, canvas = self._client.url, self._canvas
        yield Step("engine", f"the engine at {url} to answer /health")
        await probe.check_health(self._client)
        yield Step("model", f"the engine's list of models to hold {self.model}")
        max_model_len = await probe.find_model(self._client, self.model)
        yield Step("tokenizer", "the engine to tokenise as this server does")
        await probe.compare_tokenizers(self._client, self.model, self._tokenizer)
        yield Step("contract", "the engine to refuse a seed canvas of the wrong length")
        await probe.check_seeded_reads(self._client, self.model, canvas)
        yield Step("warm_up", f"the first read of the widest canvas ({canvas} tokens)")
        await probe.warm(self._read_warm, self._tokenizer, canvas)
        self._capabilities = Capabilities((canvas,), MAX_LABEL_IDS, max_model_len)

    async def watch(self) -> str:
        """Warm the narrower widths, then poll the engine's health until it is lost."""
        warming = asyncio.create_task(self._warm_the_rest())
        try:
            while True:
                try:
                    async with asyncio.timeout(POLL_S):
                        await self._lost.wait()
                except TimeoutError:
                    pass
                try:
                    await probe.check_health(self._client)
                except NotReady as lost:
                    return str(lost)
                self._lost.clear()
        finally:
            warming.cancel()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _warm_the_rest(self) -> None:
        for width in range(WIDTH_STEP, self._canvas, WIDTH_STEP):
            try:
                await probe.warm(self._read_warm, self._tokenizer, width)
            except NotReady:
                return  # the widest canvas serves every read
            self._capabilities = Capabilities(
                tuple(sorted({*self._capabilities.widths, width})),
                MAX_LABEL_IDS,
                self._capabilities.max_model_len,
            )

    async def _read_one(self, request: ReadRequest) -> Read:
        try:
            return await self._send(request, None)
        except UpstreamError as error:
            if error.kind in ("unreachable", "failed"):
                self._lost.set()  # look at the engine's health now, not at the next poll
            raise

    async def _read_warm(self, request: ReadRequest) -> Read:
        return await self._send(request, probe.WARM_UP_S)

    async def _send(self, request: ReadRequest, timeout_s: float | None) -> Read:
        if self._transport == "completions":
            body = completion_body(self.model, request)
            reply = await self._client.read(COMPLETIONS, body, timeout_s=timeout_s)
            read = parse_completion(request, reply)
        else:
            body = chat_body(self.model, request, self._tokenizer.neutralise)
            reply = await self._client.read(CHAT_COMPLETIONS, body, timeout_s=timeout_s)
            read = parse_chat(request, reply)
        length = self._capabilities.max_model_len
        if length is not None and read.prompt_tokens + request.width > length:
            # The engine then cuts the canvas short without a word.
            raise UpstreamProtocolError(
                f"prompt ({read.prompt_tokens} tokens) and canvas ({request.width}) pass its limit {length}."
            )
        return read
