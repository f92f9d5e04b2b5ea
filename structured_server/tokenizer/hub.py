"""Fetching a tokenizer's files from the hub, and nothing else of a model."""

from __future__ import annotations

from pathlib import Path

from structured_server.errors import TokenizerError

_WANTED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "*.model",
    # For tokenizers that only transformers can read:
    "config.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)


def fetch(hub_id: str, revision: str | None) -> Path:
    """Return the folder that holds the tokenizer files of a hub id, downloaded unless cached.

    Raises:
        TokenizerError: the hub cannot be reached or refuses, and the cache does not have them.
    """
    from huggingface_hub import snapshot_download  # not needed for folders

    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(_WANTED)))
    except Exception as error:  # HTTP, cache, validation and offline errors share no base class
        at = f" at revision {revision!r}" if revision else ""
        raise TokenizerError(
            f"the tokenizer of {hub_id!r}{at} could not be fetched: {_first_line(error)}",
            hint="give a folder that holds the tokenizer files; or check the id, set HF_TOKEN where the model"
            " is gated, and unset HF_HUB_OFFLINE or fill the cache beforehand",
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
