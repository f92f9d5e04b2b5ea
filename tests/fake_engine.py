"""A fake vLLM server: the read contract over real HTTP, without a model, with faults to switch on.

In process it is `async with FakeEngine() as engine`; alone it is `python -m tests.fake_engine --port 8001`,
where `PUT /faults` takes the fields of `Faults`, `GET /tally` tells how much came and, with `--remembers`,
`GET /prompts` what. Answers can be recomputed with `expected_logprob`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from structured_server.backends.vllm import EngineTokenizer
from structured_server.tokenizer import load_tokenizer
from tests.fake_faults import Faults, Tally
from tests.fake_replies import (
    chat_reply,
    completion_reply,
    expected_logprob,
    generation_reply,
    rows_of_reply,
)
from tests.toy_engine import ToyEngineTokenizer

__all__ = ["FakeEngine", "Faults", "SeenRead", "expected_logprob"]

_MAX_LABEL_IDS = 128
IMAGE_TOKENS = 70
"""What an image adds to a prompt."""


@dataclass(frozen=True, slots=True)
class SeenRead:
    """A read that the engine accepted."""

    prompt: tuple[int, ...]
    canvas: tuple[int, ...]
    body: Mapping[str, Any]


class FakeEngine:
    """One engine on a loopback port, which it keeps when it is stopped and started again.

    It sees images where it is told so. Where it may write it writes `thought`. It `remembers` its reads.
    A `steady` one answers every read of the same label ids alike, which costs it next to nothing.
    """

    def __init__(
        self,
        tokenizer: EngineTokenizer | None = None,
        *,
        model: str = "fake",
        canvas: int = 64,
        max_model_len: int = 4096,
        port: int = 0,
        images: bool = False,
        thought: Sequence[int] = (),
        remembers: bool = True,
        steady: bool = False,
    ) -> None:
        self.images, self.thought = images, thought
        self.tokenizer = tokenizer or ToyEngineTokenizer()
        self.model, self.canvas, self.max_model_len, self.port = model, canvas, max_model_len, port
        self.faults = Faults()
        self.remembers = remembers
        self._steady: dict[tuple[object, ...], bytes] | None = {} if steady else None
        self.tally = Tally()
        self.reads: list[SeenRead] = []
        self.headers: list[Mapping[str, str]] = []  # of the reads
        self.generations: list[Mapping[str, Any]] = []  # bodies
        self.in_flight = 0  # reads
        self.hung_up = 0  # reads whose client left before the reply
        self.connections: set[object] = set()  # addresses that reads came from
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Its base URL, once it has been started."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat_completions)
        app.router.add_put("/faults", self._set_faults)
        app.router.add_get("/tally", self._tell)
        app.router.add_get("/prompts", self._tell_prompts)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        listening = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self.port = listening.getsockname()[1]
        await web.SockSite(self._runner, listening).start()

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> FakeEngine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _set_faults(self, request: web.Request) -> web.Response:
        self.faults = Faults(**await request.json())
        return web.Response()

    async def _tell(self, _: web.Request) -> web.Response:
        return web.json_response({"reads": self.tally.reads, "faults": self.tally.faults})

    async def _tell_prompts(self, _: web.Request) -> web.Response:
        return web.json_response([read.prompt for read in self.reads])

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.faults.dead else 200)

    async def _models(self, _: web.Request) -> web.Response:
        length = {} if self.faults.routed else {"max_model_len": self.max_model_len}
        served = {"id": self.faults.model or self.model, **length}
        return web.json_response({"object": "list", "data": [served]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if self.faults.routed:
            return _error(404, "Invalid URL (POST /tokenize)")
        body = await request.json()
        if "messages" in body:
            prompt = self._prompt_of(body["messages"])
            if isinstance(prompt, web.Response):
                return prompt
            return web.json_response({"count": len(prompt), "tokens": prompt})
        ids = self.tokenizer.encode_like_engine(body["prompt"])
        tokens = [token_id + self.faults.other_tokenizer for token_id in ids]
        return web.json_response({"count": len(tokens), "tokens": tokens})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if self.faults.routed:
            return _error(400, "prompt: data did not match any variant of untagged enum StringOrArray")
        if "stop_token_ids" in body:
            return await self._generate(request, body)
        return await self._read(request, body, body["prompt"], chat=False)

    async def _generate(self, request: web.Request, body: Mapping[str, Any]) -> web.StreamResponse:
        self.generations.append(body)
        with self._counted():
            await asyncio.sleep(3600 if self.faults.hang else self.faults.delay_s)
        if self.faults.status is not None:
            return _error(self.faults.status, "the fault that was asked for")
        written = [*self.thought, *body["stop_token_ids"]][: body["max_tokens"]]
        reply = json.dumps(generation_reply(written, len(body["prompt"]))).encode()
        return await _send(
            request, reply[: len(reply) // (1 + (self.faults.body == "truncated"))], self.faults
        )

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.faults.routed and body.get("top_k") == 0:
            return _error(400, "top_k must be -1 (disabled) or at least 1")
        prompt = self._prompt_of(body["messages"])
        if isinstance(prompt, web.Response):
            return prompt
        return await self._read(request, body, prompt, chat=True)

    def _prompt_of(self, messages: Sequence[Mapping[str, Any]]) -> list[int] | web.Response:
        """Tokenise a user's message, with or without a system's before it, as vLLM does."""
        chat = self.tokenizer.chat
        texts, images = [], 0
        for message in messages:
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            images += sum(part["type"] == "image_url" for part in parts)
            text = "".join(part["text"] for part in parts if part["type"] == "text")
            texts.append(text.strip() if chat.strips else text)
        if images and not self.images:
            return _error(400, "this is not a multimodal model")
        if images and self.faults.images_fail:
            return _error(500, "Image size (900000000 pixels) exceeds limit of 178956970 pixels")
        *system, user = texts
        start = f"{chat.start}{system[0]}{chat.middle}" if system else chat.start_user
        ids = self.tokenizer.encode_like_engine(f"{start}{user}{chat.end}")
        return [*[self.tokenizer.noise_ids[0]] * (IMAGE_TOKENS * images), *ids]

    async def _read(
        self, request: web.Request, body: dict[str, Any], prompt: Sequence[int], *, chat: bool
    ) -> web.StreamResponse:
        canvas = self._canvas(body, prompt)
        if isinstance(canvas, web.Response):
            return canvas
        came = asyncio.get_running_loop().time()
        faults = self.faults if self.tally.reads >= self.faults.good_reads else Faults()
        if kind := self.tally.met(faults, await request.read()):
            faults = faults.of(kind)
        if self.remembers:
            self.reads.append(SeenRead(tuple(prompt), tuple(canvas), body))
            self.headers.append(request.headers)
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        if faults.stale and peer in self.connections:
            return _break(request, reset=faults.stale == "reset")
        self.connections.add(peer)
        with self._counted():
            reply = self._reply(body, prompt, canvas, faults, chat=chat)
            due = came + (3600 if faults.hang else faults.delay_s)
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            return await _send(request, reply, faults) if isinstance(reply, bytes) else reply

    def _reply(
        self,
        body: dict[str, Any],
        prompt: Sequence[int],
        canvas: Sequence[int],
        faults: Faults,
        *,
        chat: bool,
    ) -> bytes | web.Response:
        """Return the body of a 200, or another reply where that is the fault."""
        if faults.status is not None:
            return _error(faults.status, "the fault that was asked for")
        if faults.body == "html":
            return web.Response(text="<html><body>Bad gateway</body></html>", content_type="text/html")
        count = min(body["max_tokens"], len(canvas), self.max_model_len - len(prompt))
        kind = (count, chat, *body.get("logprob_token_ids", ()))
        if self._steady is not None and kind in self._steady and faults == Faults(delay_s=faults.delay_s):
            return self._steady[kind]
        rows = rows_of_reply(prompt, canvas, body.get("logprob_token_ids", ()), count, faults.body)
        reply = (chat_reply if chat else completion_reply)(rows, len(prompt))
        if body.get("return_token_ids"):
            reply["prompt_token_ids"] = [token_id + faults.other_tokenizer for token_id in prompt]
        # orjson has no NaN.
        written = json.dumps(reply).encode() if faults.body else orjson.dumps(reply)
        if self._steady is not None and not faults.body:
            self._steady[kind] = written
        return written[: len(written) // (1 + (faults.body == "truncated"))]

    def _canvas(self, body: Mapping[str, Any], prompt: Sequence[int]) -> Sequence[int] | web.Response:
        """Return the seed canvas of a read, or what vLLM refuses the request with."""
        model, served = self.faults.model or self.model, self.faults.canvas or self.canvas
        size = self.faults.vocabulary_size or self.tokenizer.vocabulary_size
        labels, extras = body.get("logprob_token_ids", ()), body.get("vllm_xargs", {})
        if body.get("model", model) != model:
            return _error(404, f"The model `{body['model']}` does not exist. Valid aliases: {model}.")
        if len(prompt) >= self.max_model_len:
            return _error(400, f"This model's maximum context length is {self.max_model_len} tokens.")
        if body["max_tokens"] > self.max_model_len:
            asked = f"max_tokens={body['max_tokens']}"
            return _error(400, f"{asked} cannot be greater than max_model_len={self.max_model_len}.")
        if labels and not body.get("logprobs"):
            return _error(400, "logprob_token_ids needs logprobs.")
        if len(labels) > _MAX_LABEL_IDS:
            return _error(400, f"logprob_token_ids holds more than {_MAX_LABEL_IDS} ids.")
        if unknown := [i for i in labels if i >= size]:
            return _error(400, f"token_id(s) {unknown} are out-of-vocab token ids. Vocabulary size: {size}")
        if "diffusion_seed_canvas" not in extras or self.faults.no_seeded_reads:
            return (0,) * served
        canvas: list[int] = extras["diffusion_seed_canvas"]
        width = extras.get("diffusion_canvas_length", served)
        if not 0 < width <= served:
            return _error(400, "diffusion_canvas_length must be no larger than the served canvas.")
        if len(canvas) != width:
            return _error(400, f"diffusion_seed_canvas must hold exactly {width} ids, got {len(canvas)}.")
        if not all(0 <= i < size for i in canvas):
            return _error(400, "diffusion_seed_canvas holds an id outside the vocabulary.")
        return canvas

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.in_flight += 1
        try:
            yield
        except asyncio.CancelledError:
            self.hung_up += 1
            raise
        finally:
            self.in_flight -= 1


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


async def _send(request: web.Request, reply: bytes, faults: Faults) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(reply)
    await response.prepare(request)
    piece = -(-len(reply) // 8) if faults.drip_s or faults.reset else len(reply)
    for start in range(0, len(reply), piece):
        if faults.reset and start:
            return _break(request, reset=True)
        await response.write(reply[start : start + piece])
        await asyncio.sleep(faults.drip_s)
    await response.write_eof()
    return response


def _break(request: web.Request, *, reset: bool) -> web.Response:
    """End the connection under a request, politely or not."""
    assert request.transport is not None
    if reset:
        at_once = struct.pack("ii", 1, 0)
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    request.transport.abort()
    return web.Response()


async def main() -> None:
    """Serve until killed; the first line of output is the URL."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--model", default="fake")
    options.add_argument("--canvas", type=int, default=64)
    options.add_argument("--max-model-len", type=int, default=4096)
    options.add_argument("--images", action="store_true")
    options.add_argument("--remembers", action="store_true", help="so that GET /prompts tells what it read")
    options.add_argument("--steady", action="store_true", help="the same answer to every read of its kind")
    options.add_argument("--tokenizer", type=load_tokenizer, default=ToyEngineTokenizer(), help="a folder")
    async with FakeEngine(**vars(options.parse_args())) as engine:
        print(engine.url, flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
