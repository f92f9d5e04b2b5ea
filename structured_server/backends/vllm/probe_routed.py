"""The checks that a router leaves to be made otherwise: most pass on reads and little else."""

from __future__ import annotations

import re

import orjson

from structured_server.backends import NotReady
from structured_server.backends.vllm.client import Client, explain
from structured_server.backends.vllm.messages import error_message
from structured_server.backends.vllm.probe import (
    BY_CHAT,
    PROBE_TEXTS,
    SHORT_SEED,
    WARM_UP_S,
    Comparable,
    compare,
    compare_sizes,
    complete,
)

_TEXT = "\n".join(PROBE_TEXTS)
_MORE_THAN_ANY = 2**31 - 1


async def find_length(client: Client, model: str) -> int | None:
    """Return the context that the engine names when it is asked for more tokens than it has room for.

    The seed of the wrong length keeps an engine that does not mind from writing them.
    """
    fields = {"max_tokens": _MORE_THAN_ANY, "vllm_xargs": SHORT_SEED}
    reply = await complete(client, model, fields, BY_CHAT)
    named = re.search(r"max_model_len\s*=\s*(\d+)", error_message(reply.body))
    return int(named[1]) if named else None


async def compare_tokenizers_by_chat(client: Client, model: str, tokenizer: Comparable) -> None:
    """Compare the ids that an engine made of telling texts in a chat message: the chat format's too.

    Raises:
        NotReady: they differ, or the engine does not tell.
    """
    await compare_sizes(client, model, tokenizer, BY_CHAT)
    fields = {
        "messages": [{"role": "user", "content": _TEXT}],
        "max_tokens": 1,
        "return_token_ids": True,
        "chat_template_kwargs": {"enable_thinking": False},
        "vllm_xargs": {"diffusion_max_steps": 1},
    }
    reply = await complete(client, model, fields, BY_CHAT, WARM_UP_S)  # it may be the engine's first
    try:
        theirs = list(orjson.loads(reply.body)["prompt_token_ids"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise NotReady(
            f"{client.url} has no /tokenize, and answered {explain(reply)} to a chat message with "
            "return_token_ids, not with token ids."
        ) from None
    chat = tokenizer.chat
    compare(_TEXT, list(tokenizer.encode_like_engine(f"{chat.start_user}{_TEXT}{chat.end}")), theirs)
