"""Taking a `tokenizer.json` apart without reading its vocabulary into Python objects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from structured_server.errors import TokenizerError

_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_ALL = (*_PARTS, "added_tokens", "post_processor")
_IDLE: Mapping[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
WITHOUT_MODEL: Mapping[str, Any] = {**_IDLE, "model": {"type": "BPE", "vocab": {}, "merges": []}}
_BEFORE_MODEL = (
    json.dumps({**_IDLE, "added_tokens": [], **dict.fromkeys(_PARTS)}).encode()[:-1] + b', "model": '
)


@dataclass(frozen=True, slots=True)
class TokenizerJson:
    """A `tokenizer.json` in two.

    `head` has the keys added_tokens, normalizer, pre_tokenizer and decoder; `model_only` is the text of
    a `tokenizer.json` that has the file's model and nothing else.
    """

    head: Mapping[str, Any]
    model_only: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Take a file's bytes apart.

        The `tokenizers` library writes the model last, so everything before it is parsed and the 30 MB
        of a large vocabulary are only copied. Other files are parsed whole.

        Raises:
            TokenizerError: the bytes are no JSON object with a model.
        """
        try:
            for match in re.finditer(rb'"model"\s*:\s*(?=\{)', raw):
                try:
                    head = json.loads(raw[: match.end()] + b"null}")
                except ValueError:
                    continue  # a "model" inside of something else
                if not head.keys() >= {*_ALL}:
                    break  # not the last key
                return cls(_checked(head), b"".join((_BEFORE_MODEL, memoryview(raw)[match.end() :])))
            whole = json.loads(raw)
            return cls(_checked(whole), _BEFORE_MODEL + json.dumps(whole["model"]).encode() + b"}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TokenizerError(
                "tokenizer.json must be a JSON object with a model, as the tokenizers library writes it"
            ) from error


def _checked(whole: Mapping[str, Any]) -> dict[str, Any]:
    head = {key: whole.get(key) for key in ("added_tokens", *_PARTS)}
    if not isinstance(head["added_tokens"] or [], list):
        raise TokenizerError("tokenizer.json, added_tokens: must be a list")
    return head
