"""What is asked of a vLLM server before its answers are believed. Each check proves one thing, by effect."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from structured_server.backends import NotReady
from structured_server.backends.vllm.client import Client, explain
from structured_server.backends.vllm.connections import Reply
from structured_server.backends.vllm.messages import CHAT_COMPLETIONS, COMPLETIONS, TOKENIZE, error_message
from structured_server.core.canvas import Canvas, Slot
from structured_server.core.reads import Prompt, Read, ReadRequest, checked, fill_with_noise
from structured_server.core.tokens import Kind, Segment, Tokenizer
from structured_server.errors import UpstreamError, UpstreamTimeout

PROBE_S = 30.0
HEALTH_S = 2.0
# A grey slope of 64 x 64 pixels, as PNG.
_PIXELS = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAcklEQVR42mNgYOHgERCRkFFQ0dAxMLGwcXDx8AkIiYhJSMnIKSip"
    "qGlo6eiZMGXGnAVLVqzZsGXHngNHTpy5cOXGnQdPXrz58OXHH4ZRA0YNGDVg1IBRA0YNGDVg1IBRA0YNGDVg1IBRA0YNGDVguBsA"
    "AHs24GqR2oMfAAAAAElFTkSuQmCC"
)
WARM_UP_S = 600.0  # a first read compiles kernels: 27 to 150 s have been seen on GPUs

# Together these cross words, digits, white space, JSON, accents, scripts, emoji, markup and control tokens.
PROBE_TEXTS = (
    "Should we wake an on-call engineer? yes no",
    '{"urgent":"yes","team":"networking","severity":"critical"}',
    "  two  spaces\n\nlines\ttabs\r\n 0123456789 3.14",
    "naïve café, Zürich, Ελλάδα, 日本語, العربية, 🚀",
    "<td>cell</td> <turn|><|turn>system\n<pad><mask>",
)


@dataclass(frozen=True, slots=True)
class Route:
    """A way that reads go: its path, and what the smallest request has there."""

    path: str
    prompt: Mapping[str, Any]
    logprobs: Mapping[str, Any]


BY_IDS = Route(COMPLETIONS, {"prompt": [0]}, {"logprobs": 1})
BY_CHAT = Route(
    CHAT_COMPLETIONS,
    {"messages": [{"role": "user", "content": "0"}]},
    {"logprobs": True, "top_logprobs": 1},
)
SHORT_SEED = {"diffusion_seed_canvas": [0], "diffusion_max_steps": 1, "diffusion_read_only": True}
"""What an engine that knows seeded reads refuses before it does anything."""


class Comparable(Tokenizer, Protocol):
    """A tokenizer that can say what the engine's should give."""

    def encode_like_engine(self, text: str) -> Sequence[int]:
        """Return the ids that the engine's own tokenizer gives, control tokens recognised."""


async def check_health(client: Client, path: str = "/health") -> None:
    """Ask the engine whether it is up.

    Raises:
        NotReady: nothing answers, or the engine says that it is dead.
    """
    reply = await ask(client.get(path, timeout_s=HEALTH_S))
    if reply.status == 503:
        raise NotReady(f"the engine at {client.url} says that it is dead ({path} answered 503).")
    if reply.status != 200:
        raise NotReady(f"{client.url}{path} answered {reply.status}, not 200: is this a vLLM server?")


async def find_model(client: Client, model: str) -> int | None:
    """Return the served model's context in tokens, None where the engine does not say.

    Raises:
        NotReady: the engine serves other models.
    """
    reply = await ask(client.get("/v1/models", timeout_s=PROBE_S))
    try:
        served = {entry["id"]: entry.get("max_model_len") for entry in orjson.loads(reply.body)["data"]}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise NotReady(f"{client.url}/v1/models answered {reply.status} with no list of models.") from None
    if model not in served:
        raise NotReady(
            f"the engine serves {', '.join(map(str, served)) or 'nothing'}, not {model}: "
            "set --model to the engine's --served-model-name."
        )
    length = served[model]
    return length if isinstance(length, int) else None


async def tokenises(client: Client, model: str) -> bool:
    """Tell whether there is a `/tokenize` to compare with: routers have none."""
    body = orjson.dumps({"model": model, "prompt": "", "add_special_tokens": False})
    return (await ask(client.post(TOKENIZE, body, timeout_s=PROBE_S))).status != 404


async def compare_tokenizers(
    client: Client, model: str, tokenizer: Comparable, route: Route = BY_IDS
) -> None:
    """Compare ids for a few telling texts, and the sizes of the vocabularies.

    Raises:
        NotReady: they differ, or the engine does not tell.
    """
    for text in PROBE_TEXTS:
        body = orjson.dumps({"model": model, "prompt": text, "add_special_tokens": False})
        reply = await ask(client.post(TOKENIZE, body, timeout_s=PROBE_S))
        try:
            theirs = list(orjson.loads(reply.body)["tokens"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise NotReady(f"{client.url}/tokenize answered {explain(reply)}, not with token ids.") from None
        compare(text, list(tokenizer.encode_like_engine(text)), theirs)
    await compare_sizes(client, model, tokenizer, route)


def compare(text: str, ours: Sequence[int], theirs: Sequence[int]) -> None:
    """Hold the ids of a text against the engine's.

    Raises:
        NotReady: they differ.
    """
    if ours != theirs:
        raise NotReady(
            f"this server's tokenizer is not the engine's: {text[:20]!r}... is {len(ours)} tokens here, "
            f"{len(theirs)} there, with other ids. Set --tokenizer to the engine's model."
        )


async def compare_sizes(client: Client, model: str, tokenizer: Comparable, route: Route) -> None:
    """Hold the tokenizer's ids against the size of the engine's vocabulary, where the engine tells it.

    Raises:
        NotReady: there are ids beyond it.
    """
    size = await _vocabulary_size(client, model, route)
    if size is not None and tokenizer.noise_ids[-1] >= size:
        raise NotReady(
            f"this server's tokenizer has ids up to {tokenizer.noise_ids[-1]}, the engine's model only "
            f"{size} entries. Set --tokenizer to the engine's model."
        )


async def check_seeded_reads(client: Client, model: str, canvas: int, route: Route = BY_IDS) -> None:
    """Send a seed of one token: an engine that knows seeded reads refuses it and names its canvas.

    Raises:
        NotReady: it answers as if nothing had been asked, or its canvas is too narrow.
    """
    reply = await complete(client, model, {"max_tokens": 1, "vllm_xargs": SHORT_SEED}, route)
    if reply.status == 200:
        raise NotReady(
            "the engine ignores seeded canvases, so every answer would be made up: "
            "it must be vLLM 0.31 or later serving a diffusion model."
        )
    message = error_message(reply.body)
    if reply.status != 400 or "diffusion_seed_canvas" not in message:
        raise NotReady(
            f"the engine answered {explain(reply)} to a seed canvas of the wrong length, not its 400."
        )
    served = re.search(r"exactly (\d+) ids", message)
    if served and int(served[1]) < canvas:
        raise NotReady(
            f"the engine's canvas is {served[1]} tokens and this server was started with --canvas {canvas}: "
            f"start this server with --canvas {served[1]}, or the engine with "
            f"""--diffusion-config '{{"canvas_length": {canvas}}}'."""
        )


async def sees_images(client: Client, model: str) -> bool:
    """Tell whether the engine takes a chat message with an image: a text-only one refuses to tokenise it."""
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PIXELS}"}},
        {"type": "text", "text": "What is this?"},
    ]
    body = orjson.dumps({"model": model, "messages": [{"role": "user", "content": content}]})
    reply = await ask(client.post(TOKENIZE, body, timeout_s=PROBE_S))
    return reply.status == 200


async def warm(read: Callable[[ReadRequest], Awaitable[Read]], tokenizer: Tokenizer, width: int) -> None:
    """Make one real read at a width and check that all of it comes back.

    Raises:
        NotReady: it does not.
    """
    labels = [tokenizer.encode(word)[0] for word in ("yes", "no")]
    ids = (tokenizer.turn_close, *(tokenizer.padding,) * (width - 2), labels[0])
    canvas = Canvas(ids, (Slot(width - 1, tuple((label,) for label in dict.fromkeys(labels))),))
    segments = (
        Segment(Kind.CONTROL, tokenizer.chat.start),
        Segment(Kind.TEXT, "Answer yes or no."),
        Segment(Kind.CONTROL, tokenizer.chat.middle),
        Segment(Kind.TEXT, "Is this a question?"),
        Segment(Kind.CONTROL, tokenizer.chat.end),
    )
    request = ReadRequest(
        Prompt(tokenizer.encode_prompt(segments), segments),
        fill_with_noise(canvas, bytes(32), 0, tokenizer.noise_ids),
        canvas.positions,
        canvas.label_ids,
    )
    try:
        checked(request, await read(request))
    except UpstreamTimeout:
        raise NotReady(f"a read of {width} tokens did not come back within {WARM_UP_S:g} s.") from None
    except UpstreamError as error:
        raise NotReady(f"a read of {width} tokens failed: {error.message}") from None


async def _vocabulary_size(client: Client, model: str, route: Route) -> int | None:
    """Return the size that the engine names when it is asked for an id beyond any vocabulary."""
    fields = {"max_tokens": 1, "logprob_token_ids": [2**31 - 1], **route.logprobs}
    reply = await complete(client, model, fields, route)
    named = re.search(r"Vocabulary size: (\d+)", error_message(reply.body))
    return int(named[1]) if named else None


async def complete(
    client: Client, model: str, fields: Mapping[str, Any], route: Route, timeout_s: float = PROBE_S
) -> Reply:
    """Send the smallest request there is with these fields.

    Raises:
        NotReady: nothing answers.
    """
    body = orjson.dumps({"model": model, **route.prompt, **fields})
    return await ask(client.post(route.path, body, timeout_s=timeout_s))


async def ask(reply: Awaitable[Reply]) -> Reply:
    """Return the reply.

    Raises:
        NotReady: none comes.
    """
    try:
        return await reply
    except UpstreamError as error:
        raise NotReady(error.message) from None
