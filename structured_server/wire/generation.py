"""A chat request on its way to an engine that writes: what a diffusion model has no use for is taken out.

What would be sampled token by token is dropped, grammars are refused, and so is what ends the engine.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json

from structured_server.errors import InvalidRequest, MalformedBody

# A canvas is denoised as a whole at fixed temperatures: an engine refuses these, or ignores them.
WITHOUT_EFFECT = (
    "allowed_token_ids",
    "bad_words",
    "frequency_penalty",
    "length_penalty",
    "logit_bias",
    "min_p",
    "min_tokens",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "top_k",
    "top_p",
    "use_beam_search",
)
GRAMMARS = (
    "grammar",
    "guided_choice",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "guided_whitespace_pattern",
    "structural_tag",
    "structured_outputs",
)
REMOTE = ("kv_transfer_params", "ec_transfer_params")
"""Where an engine is told addresses of other engines to fetch from."""

DEADLY = ("echo", "prompt_logprobs")


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the object that the body of a chat request holds. Of its fields, these have been checked.

    Raises:
        MalformedBody: it is not JSON.
        InvalidRequest: it is no object, or has no messages, or names no model where it should.
    """
    try:
        given = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise MalformedBody(f"the body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise InvalidRequest("the body must be an object.")
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise InvalidRequest("must be a list of at least one message.", path=("messages",))
    if not isinstance(given.get("model"), str | None):
        raise InvalidRequest("must be a name.", path=("model",))
    return given


def for_engine(asked: dict[str, Any], model: str, cache_salt: str = "") -> bytes:
    """Return the request as the engine takes it, with the key's salt where it has one.

    Raises:
        InvalidRequest: it asks for a grammar, for what would end the engine, or for what lies at an address.
    """
    _refuse_addresses(asked["messages"])
    for name in DEADLY:
        given = asked.get(name)
        # With prompt_logprobs 0, or false, it still gives those of the prompt's own tokens, and ends.
        if given or (name == "prompt_logprobs" and given is not None):
            raise InvalidRequest("is not served: it ends the engine.", path=(name,))
    for name in GRAMMARS:
        if asked.get(name) is not None:
            raise _no_grammar(name)
    form = asked.get("response_format")
    if isinstance(form, dict) and form.get("type", "text") != "text":
        raise _no_grammar("response_format")
    choice = asked.get("tool_choice")
    if asked.get("tools") and (choice == "required" or isinstance(choice, dict)):
        raise _no_grammar("tool_choice")
    sent = {name: value for name, value in asked.items() if name not in (*WITHOUT_EFFECT, *REMOTE)}
    if cache_salt:
        sent["cache_salt"] = cache_salt
    # Said, because an engine takes another default from the model's own files and then refuses it.
    sent |= {"model": model, "temperature": 1.0}
    try:  # not by orjson, which refuses integers beyond 64 bits
        return json.dumps(sent, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        raise InvalidRequest("the body holds a number that JSON cannot carry.") from None


def _refuse_addresses(messages: list[Any]) -> None:
    """Refuse media by address: an engine would fetch them, from wherever the sender says."""
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        for place, part in enumerate(content if isinstance(content, list) else ()):
            for name, given in part.items() if isinstance(part, dict) else ():
                url = given.get("url") if isinstance(given, dict) else given
                if name.endswith("_url") and not (isinstance(url, str) and url.lower().startswith("data:")):
                    raise InvalidRequest(
                        "must be a data URL (data:image/png;base64,...).",
                        path=("messages", index, "content", place, name),
                        hint="Addresses are not fetched, and paths are not read: send the content itself.",
                    )


def _no_grammar(name: str) -> InvalidRequest:
    return InvalidRequest(
        "is not served: a diffusion model does not write token by token, as a grammar needs.",
        path=(name,),
        hint="Ask typed questions instead: POST /v1/decisions or /decide.",
    )
