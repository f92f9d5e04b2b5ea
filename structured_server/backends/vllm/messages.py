"""vLLM's request and reply bodies for one read: types at the edge, nothing else knows them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from structured_server.backends import Generation
from structured_server.core.reads import Image, Prompt, Read, ReadRequest, Row
from structured_server.core.tokens import Kind, Segment
from structured_server.errors import UpstreamProtocolError

_TOKEN = "token_id:"  # noqa: S105  what vLLM puts before an id when asked for tokens as ids
_Reply = TypeVar("_Reply")
_ID_DIGITS = 9  # more than any vocabulary needs; tokenizers and int() refuse far longer numbers

COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"
TOKENIZE = "/tokenize"


def completion_body(model: str, request: ReadRequest) -> bytes:
    """Return the body of `POST /v1/completions`, the prompt as token ids."""
    body: dict[str, Any] = {"model": model, "prompt": request.prompt.ids, "logprobs": 1}
    return orjson.dumps(body | _seeded_read(request) | _salt(request.prompt))


def generation_body(model: str, prompt: Prompt, tokens: int, stop: int) -> bytes:
    """Return the body of `POST /v1/completions` that lets the model write."""
    return orjson.dumps(
        {
            "model": model,
            "prompt": prompt.ids,
            "max_tokens": tokens,
            "stop_token_ids": [stop],
            "logprobs": 0,  # the ids of what is written stand there
            "return_tokens_as_token_ids": True,
        }
        | _salt(prompt)
    )


def chat_body(model: str, request: ReadRequest, neutralise: Callable[[str], str]) -> bytes:
    """Return the body of `POST /v1/chat/completions`, whose text vLLM tokenises itself.

    There a control token's spelling becomes the control token, so `neutralise` breaks it first.
    """
    messages: list[dict[str, Any]] = [
        {"role": role, "content": neutralise(text)} for role, text in _messages(request.prompt.segments)
    ]
    if images := request.prompt.images:
        text = {"type": "text", "text": messages[-1]["content"]}
        messages[-1]["content"] = [*map(_image_part, images), text]
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "logprobs": True,
        "top_logprobs": 1,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    # vLLM takes 0 and -1 for all of the vocabulary, smg only -1.
    return orjson.dumps(body | _seeded_read(request) | {"top_k": -1} | _salt(request.prompt))


def chat_headers(prompt: Prompt) -> dict[str, str]:
    """Return what keeps all reads about one state together behind a router that heeds it, as smg can."""
    digest = blake2b(digest_size=16)
    for segment in prompt.segments:
        if segment.kind is Kind.STATE:
            digest.update(segment.text.encode("utf-8", "surrogatepass"))
    return {"X-SMG-Routing-Key": digest.hexdigest()}


def parse_completion(request: ReadRequest, body: bytes) -> Read:
    """Return the read that a reply of `/v1/completions` holds.

    Raises:
        UpstreamProtocolError: the reply is not one, or holds another number of rows.
    """
    reply = _parse(_completion, body)
    logprobs = reply.choices[0].logprobs
    rows = logprobs.top_logprobs
    _check_row_count(request, len(rows), len(logprobs.tokens))
    return Read(
        tuple(
            _row(_by_id(_parse(_completion_row, rows[p])), _token_id(logprobs.tokens[p]))
            for p in request.positions
        ),
        *_tokens(reply.usage),
    )


def parse_generation(body: bytes, stop: int) -> Generation:
    """Return what was written, up to the token that ends it.

    Raises:
        UpstreamProtocolError: the reply is no generation.
    """
    tokens = _parse(_written, body).choices[0].logprobs.tokens
    ids = tuple(map(_token_id, tokens))
    if stop in ids:
        return Generation(ids[: ids.index(stop)], stopped=True)
    return Generation(ids, stopped=False)


def parse_chat(request: ReadRequest, body: bytes) -> Read:
    """Return the read that a reply of `/v1/chat/completions` holds.

    Raises:
        UpstreamProtocolError: the reply is not one, or holds another number of rows.
    """
    reply = _parse(_chat, body)
    content = reply.choices[0].logprobs.content
    _check_row_count(request, len(content), len(content))
    rows = [_parse(_chat_row, content[p]) for p in request.positions]
    return Read(
        tuple(
            _row(_by_id({entry.token: entry.logprob for entry in row.top_logprobs}), _token_id(row.token))
            for row in rows
        ),
        *_tokens(reply.usage),
    )


def parse_token_count(body: bytes) -> int | None:
    """Return the tokens that a reply of `/tokenize` counts, None where it is another reply."""
    try:
        count = orjson.loads(body)["count"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) else None


def error_message(body: bytes) -> str:
    """Return the message of an error reply, or the empty string."""
    try:
        message = orjson.loads(body)["error"]["message"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
    return message if isinstance(message, str) else ""


def rows_wanted(request: ReadRequest) -> int:
    """Return how many rows are asked for: those up to the last slot."""
    return request.positions[-1] + 1


def _seeded_read(request: ReadRequest) -> dict[str, Any]:
    return {
        "max_tokens": rows_wanted(request),
        # A model's generation_config.json may set these; a label that they cut off would read as impossible.
        "top_p": 1,
        "top_k": 0,
        "logprob_token_ids": request.label_ids,
        "return_tokens_as_token_ids": True,
        "vllm_xargs": {
            "diffusion_seed_canvas": request.canvas,
            "diffusion_canvas_length": request.width,
            "diffusion_max_steps": request.steps,
            "diffusion_read_only": True,
            **({"diffusion_pinned": request.pinned} if request.steps > 1 else {}),
            **({"diffusion_constrained": True} if request.constrained else {}),
        },
    }


def _salt(prompt: Prompt) -> dict[str, Any]:
    return {"cache_salt": prompt.cache_salt} if prompt.cache_salt else {}


def _image_part(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}


def _messages(segments: Sequence[Segment]) -> list[tuple[str, str]]:
    """Split a prompt at its control text into the system's and the user's message."""
    texts: list[str] = []
    for segment in segments:
        if segment.kind is Kind.CONTROL:
            texts.append("")
        else:
            texts[-1] += segment.text
    return list(zip(("system", "user"), texts[:-1], strict=True))


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _CachedTokens(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count
    prompt_tokens_details: _CachedTokens | None = None


# Of the rows only those of slots are looked into: the others are checked to be JSON, and counted.
class _CompletionLogprobs(msgspec.Struct):
    tokens: list[str]
    top_logprobs: list[msgspec.Raw]


class _CompletionChoice(msgspec.Struct):
    logprobs: _CompletionLogprobs


class _Completion(msgspec.Struct):
    choices: tuple[_CompletionChoice]
    usage: _Usage


class _WrittenTokens(msgspec.Struct):
    tokens: list[str]


class _WrittenChoice(msgspec.Struct):
    logprobs: _WrittenTokens


class _Written(msgspec.Struct):
    choices: tuple[_WrittenChoice]


class _Logprob(msgspec.Struct):
    token: str
    logprob: float


class _ChatRow(msgspec.Struct):
    token: str
    top_logprobs: list[_Logprob]


class _ChatLogprobs(msgspec.Struct):
    content: list[msgspec.Raw]


class _ChatChoice(msgspec.Struct):
    logprobs: _ChatLogprobs


class _Chat(msgspec.Struct):
    choices: tuple[_ChatChoice]
    usage: _Usage


_completion = msgspec.json.Decoder(_Completion)
_completion_row: msgspec.json.Decoder[dict[str, float]] = msgspec.json.Decoder(dict[str, float])
_chat = msgspec.json.Decoder(_Chat)
_chat_row = msgspec.json.Decoder(_ChatRow)
_written = msgspec.json.Decoder(_Written)


def _parse(decoder: msgspec.json.Decoder[_Reply], body: bytes | msgspec.Raw) -> _Reply:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # it names fields of ours, and no values
        raise UpstreamProtocolError(f"the engine's reply is no read: {error}.") from None


def _check_row_count(request: ReadRequest, rows: int, tokens: int) -> None:
    wanted = rows_wanted(request)
    if rows != wanted or tokens != wanted:
        raise UpstreamProtocolError(
            f"the engine returned {rows} rows of {wanted}: prompt and canvas may not fit its context."
        )


def _row(logprobs: Mapping[int, float], top: int) -> Row:
    return Row(logprobs, top, logprobs.get(top))


def _by_id(row: dict[str, float]) -> dict[int, float]:
    return {_token_id(token): logprob for token, logprob in row.items()}


@lru_cache(1 << 14)  # labels come again and again
def _token_id(token: str) -> int:
    number = token.removeprefix(_TOKEN)
    if number == token or not (number.isascii() and number.isdigit() and len(number) <= _ID_DIGITS):
        raise UpstreamProtocolError("the engine's reply names a token otherwise than by its id.")
    return int(number)


def _tokens(usage: _Usage) -> tuple[int, int | None]:
    details = usage.prompt_tokens_details
    return usage.prompt_tokens, details.cached_tokens if details else None
