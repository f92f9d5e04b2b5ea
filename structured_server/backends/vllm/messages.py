"""vLLM's request and reply bodies for one read: types at the edge, nothing else knows them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from structured_server.backends import Generation
from structured_server.core.reads import Image, Prompt, Read, ReadRequest, Row
from structured_server.core.tokens import Kind, Segment
from structured_server.errors import UpstreamProtocolError

_TOKEN = "token_id:"  # noqa: S105  what vLLM puts before an id when asked for tokens as ids
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
    reply = _parse(_Completion, body)
    logprobs = reply.choices[0].logprobs
    rows = len(logprobs.top_logprobs)
    _check_row_count(request, rows, len(logprobs.tokens))
    return Read(
        tuple(
            _row(_by_id(logprobs.top_logprobs[p]), _token_id(logprobs.tokens[p])) for p in request.positions
        ),
        *_tokens(reply.usage),
    )


def parse_generation(body: bytes, stop: int) -> Generation:
    """Return what was written, up to the token that ends it.

    Raises:
        UpstreamProtocolError: the reply is no generation.
    """
    tokens = _parse(_Written, body).choices[0].logprobs.tokens
    ids = tuple(map(_token_id, tokens))
    if stop in ids:
        return Generation(ids[: ids.index(stop)], stopped=True)
    return Generation(ids, stopped=False)


def parse_chat(request: ReadRequest, body: bytes) -> Read:
    """Return the read that a reply of `/v1/chat/completions` holds.

    Raises:
        UpstreamProtocolError: the reply is not one, or holds another number of rows.
    """
    reply = _parse(_Chat, body)
    content = reply.choices[0].logprobs.content
    _check_row_count(request, len(content), len(content))
    return Read(
        tuple(
            _row(
                _by_id({entry.token: entry.logprob for entry in content[p].top_logprobs}),
                _token_id(content[p].token),
            )
            for p in request.positions
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


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True)


_Reply = TypeVar("_Reply", bound=_Wire)
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class _CachedTokens(_Wire):
    cached_tokens: _Count | None = None


class _Usage(_Wire):
    prompt_tokens: _Count
    prompt_tokens_details: _CachedTokens | None = None


class _CompletionLogprobs(_Wire):
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class _CompletionChoice(_Wire):
    logprobs: _CompletionLogprobs


class _Completion(_Wire):
    choices: tuple[_CompletionChoice]
    usage: _Usage


class _WrittenTokens(_Wire):
    tokens: list[str]


class _WrittenChoice(_Wire):
    logprobs: _WrittenTokens


class _Written(_Wire):
    choices: tuple[_WrittenChoice]


class _Logprob(_Wire):
    token: str
    logprob: float


class _ChatRow(_Wire):
    token: str
    top_logprobs: list[_Logprob]


class _ChatLogprobs(_Wire):
    content: list[_ChatRow]


class _ChatChoice(_Wire):
    logprobs: _ChatLogprobs


class _Chat(_Wire):
    choices: tuple[_ChatChoice]
    usage: _Usage


_NAMES = frozenset(name for each in _Wire.__subclasses__() for name in each.model_fields)


def _parse(model: type[_Reply], body: bytes) -> _Reply:
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        # Of the names in a reply only our own are repeated: the engine's may hold text.
        where = (
            ".".join(str(part) for part in first["loc"] if part in _NAMES or isinstance(part, int)) or "body"
        )
        raise UpstreamProtocolError(f"the engine's reply is no read: {where}: {first['msg']}.") from None


def _check_row_count(request: ReadRequest, rows: int, tokens: int) -> None:
    wanted = rows_wanted(request)
    if rows != wanted or tokens != wanted:
        raise UpstreamProtocolError(
            f"the engine returned {rows} rows of {wanted}: prompt and canvas may not fit its context."
        )


def _row(logprobs: Mapping[int, float], top: int) -> Row:
    return Row(logprobs, top, logprobs.get(top))


def _by_id(row: Mapping[str, float]) -> dict[int, float]:
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
