"""The vLLM backend: reads as requests in parallel, and what makes it ready or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Protocol

from structured_server import tracing
from structured_server.backends import Generation, NotReady, Relayed, Single, Step
from structured_server.backends.vllm import probe, probe_routed
from structured_server.backends.vllm.client import Client
from structured_server.backends.vllm.messages import (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    TOKENIZE,
    chat_body,
    chat_headers,
    completion_body,
    generation_body,
    parse_chat,
    parse_completion,
    parse_generation,
    parse_token_count,
)
from structured_server.core.plan import Capabilities
from structured_server.core.reads import Prompt, Read, ReadRequest, checked
from structured_server.core.tokens import Tokenizer
from structured_server.errors import (
    InvalidRequest,
    StateTooLong,
    UpstreamError,
    UpstreamFailed,
    UpstreamProtocolError,
    UpstreamRejected,
)
from structured_server.parallel import together
from structured_server.settings import PromptTransport

WIDTH_STEP = 16
MAX_LABEL_IDS = 128  # vLLM's own limit on logprob_token_ids
MAX_STEPS = 8
POLL_S = 1.0
GENERATION_S = 600.0  # a thought of thousands of tokens takes long; the decision's deadline is what bounds it


class EngineTokenizer(Tokenizer, Protocol):
    """A tokenizer that can be compared with the engine's and can defuse text for it."""

    def encode_like_engine(self, text: str) -> Sequence[int]:
        """Return the ids that the engine's own tokenizer gives, control tokens recognised."""

    def neutralise(self, text: str) -> str:
        """Return the text with every control token's spelling broken."""


class VllmBackend(Single):
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
        health_path: str = "/health",
    ) -> None:
        self.model = model
        self._tokenizer = tokenizer
        self._canvas = canvas
        self._transport = transport
        self._route = probe.BY_IDS if transport == "completions" else probe.BY_CHAT
        self._health_path = health_path
        self._client = Client(url, timeout_s=read_timeout_s)
        self._capabilities = Capabilities(
            (canvas,),
            MAX_LABEL_IDS,
            None,
            max_steps=MAX_STEPS,
            constrained=True,
            generation=True,
            chat=True,
            continues=transport == "completions",
            separate=True,
        )
        self._lost = asyncio.Event()

    @property
    def url(self) -> str:
        """The server's address."""
        return self._client.url

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

    async def generate(self, prompt: Prompt, tokens: int, stop: int) -> Generation:
        """Have the model write.

        Raises:
            UpstreamError: it failed.
        """
        body = generation_body(self.model, prompt, tokens, stop)
        with self._noticing_loss():
            reply = await self._client.read(COMPLETIONS, body, timeout_s=GENERATION_S)
        return parse_generation(reply, stop)

    @asynccontextmanager
    async def chat(self, body: bytes) -> AsyncIterator[Relayed]:
        """Send a chat request to the engine, and hold its reply open.

        Raises:
            UpstreamError: it failed before it replied, or while it did.
        """
        with self._noticing_loss():
            async with self._client.stream(CHAT_COMPLETIONS, body, timeout_s=GENERATION_S) as reply:
                yield reply

    async def prepare(self) -> AsyncIterator[Step]:
        """Check the engine, its model, tokenizer, contract and widest canvas.

        Raises:
            NotReady: one of them is not as it must be.
        """
        self._lost.clear()
        url, canvas = self._client.url, self._canvas
        yield Step("engine", f"the engine at {url} to answer {self._health_path}")
        await probe.check_health(self._client, self._health_path)
        yield Step("model", f"the engine's list of models to hold {self.model}")
        max_model_len = await probe.find_model(self._client, self.model)
        if max_model_len is None and self._route is probe.BY_CHAT:
            max_model_len = await probe_routed.find_length(self._client, self.model)
        yield Step("tokenizer", "the engine to tokenise as this server does")
        if self._route is probe.BY_IDS or await probe.tokenises(self._client, self.model):
            await probe.compare_tokenizers(self._client, self.model, self._tokenizer, self._route)
        else:
            await probe_routed.compare_tokenizers_by_chat(self._client, self.model, self._tokenizer)
        yield Step("contract", "the engine to refuse a seed canvas of the wrong length")
        await probe.check_seeded_reads(self._client, self.model, canvas, self._route)
        yield Step("warm_up", f"the first read of the widest canvas ({canvas} tokens)")
        await probe.warm(self._read_warm, self._tokenizer, canvas)
        yield Step("images", "the engine to say whether it sees images")
        images = await probe.sees_images(self._client, self.model)
        self._capabilities = replace(
            self._capabilities, widths=(canvas,), max_model_len=max_model_len, images=images
        )

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
                    await probe.check_health(self._client, self._health_path)
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
            widths = tuple(sorted({*self._capabilities.widths, width}))
            self._capabilities = replace(self._capabilities, widths=widths)

    async def _read_one(self, request: ReadRequest) -> Read:
        with tracing.span("read", width=request.width, upstream=self.url), self._noticing_loss():
            return await self._send(request, None)

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        """Look at the engine's health now, not at the next poll, when it may be lost."""
        try:
            yield
        except UpstreamError as error:
            if error.kind in ("unreachable", "failed"):
                self._lost.set()
            raise

    async def _read_warm(self, request: ReadRequest) -> Read:
        return await self._send(request, probe.WARM_UP_S)

    async def _send(self, request: ReadRequest, timeout_s: float | None) -> Read:
        if self._transport == "completions" and not request.prompt.images:
            body = completion_body(self.model, request)
            reply = await self._client.read(COMPLETIONS, body, timeout_s=timeout_s)
            read = parse_completion(request, reply)
        else:
            body = chat_body(self.model, request, self._tokenizer.neutralise)
            reply = await self._read_chat(request, body, timeout_s)
            read = parse_chat(request, reply)
        length = self._capabilities.max_model_len
        if length is not None and read.prompt_tokens + request.width > length:
            # The engine then cuts the canvas short without a word.
            if request.prompt.images:  # whose tokens nobody here could count
                raise _too_long_with_images(read.prompt_tokens, length - request.width)
            raise UpstreamProtocolError(
                f"prompt ({read.prompt_tokens} tokens) and canvas ({request.width}) pass its limit {length}."
            )
        return checked(request, read)

    async def _read_chat(self, request: ReadRequest, body: bytes, timeout_s: float | None) -> bytes:
        """Send a chat read. What an engine refuses with images in it, it refuses because of them.

        It may fail on them instead: vLLM answers 500 to an image that claims too many pixels, to the read as
        to the mere tokenising of its prompt, which a failure of the engine's own leaves alone.
        """
        try:
            return await self._client.read(
                CHAT_COMPLETIONS, body, timeout_s=timeout_s, headers=chat_headers(request.prompt)
            )
        except (UpstreamRejected, UpstreamFailed) as error:
            if not request.prompt.images:
                raise
            tokens = parse_token_count((await self._client.post(TOKENIZE, body)).body)
            length = self._capabilities.max_model_len
            if tokens is not None and length is not None and tokens + request.width > length:
                raise _too_long_with_images(tokens, length - request.width) from None
            if tokens is not None and isinstance(error, UpstreamFailed):
                raise
            raise InvalidRequest(
                "were refused by the engine: one of them may be damaged, too large, or one too many.",
                path=("images",),
            ) from None


def _too_long_with_images(tokens: int, room: int) -> StateTooLong:
    return StateTooLong(
        f"and images have {tokens} tokens with the questions; {room} fit.",
        path=("state",),
        hint="Send fewer or smaller images, or shorten the state.",
    )
