"""Finding and reading a tokenizer's files: which there are, what the configuration names, the fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structured_server.errors import TokenizerError
from structured_server.tokenizer import hub
from structured_server.tokenizer.added import AddedToken

TOKENIZER_JSON = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_SPECIAL_TOKENS = "special_tokens_map.json"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """What a folder says about its tokenizer."""

    special: Mapping[str, str]  # "bos_token" -> "<bos>", and so on
    named: frozenset[str]  # every string that is named as a special token
    added: Mapping[int, AddedToken]  # from the configuration
    legacy: bool  # transformers' `legacy`: each text after a control token gets a dummy prefix
    template: str

    def fingerprint(self, model: bytes) -> str:
        """Return a digest, 16 hex digits, of all that decides ids and prompts; `model` is the model file."""
        settings = [sorted(self.special.items()), sorted(self.named), sorted(self.added.items()), self.legacy]
        digest = hashlib.blake2b(digest_size=8)
        for part in (model, repr(settings).encode(), self.template.encode()):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()


def find_folder(source: str, revision: str | None) -> Path:
    """Return the folder of a source: a path, or a hub id whose files are fetched.

    Raises:
        TokenizerError: there is no such folder, and it is no hub id that can be fetched.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise TokenizerError(f"tokenizer {source!r} is a file: give the folder that holds it")
    if not _HUB_ID.fullmatch(source):
        raise TokenizerError(f"there is no folder {source!r}, and it is no hub id like owner/name")
    return hub.fetch(source, revision)


def read_files(folder: Path) -> TokenizerFiles:
    """Read a folder's tokenizer configuration and chat template.

    Raises:
        TokenizerError: a file is missing or is not what it should be; the message names it.
    """
    config = _read_object(folder / _CONFIG)
    special = _named_tokens(_read_object(folder / _SPECIAL_TOKENS)) | _named_tokens(config)
    return TokenizerFiles(
        special=special,
        named=frozenset(special.values()) | _listed_tokens(config),
        added=_configured(config),
        legacy=config.get("legacy") is True,
        template=_chat_template(folder, config),
    )


def read_model(folder: Path) -> tuple[str, bytes]:
    """Return the name and the bytes of a folder's model file.

    That is `tokenizer.json`, or a SentencePiece `.model`, or a `tokenizer.json` made by transformers.

    Raises:
        TokenizerError: there is none.
    """
    path = folder / TOKENIZER_JSON
    if path.is_file():
        return path.name, path.read_bytes()
    models = sorted(folder.glob("*.model"), key=lambda path: (path.name != "tokenizer.model", path.name))
    if models and (models[0].name == "tokenizer.model" or len(models) == 1):
        return models[0].name, models[0].read_bytes()
    if models:
        raise TokenizerError(
            f"{len(models)} .model files and no {TOKENIZER_JSON}: name the right one tokenizer.model"
        )
    return TOKENIZER_JSON, _convert(folder)


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; a file that does not exist is an empty one."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path.name} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path.name} must hold a JSON object")
    return value


def _token_text(value: object) -> str | None:
    """Return a special token's string, which is written plainly or as `{"content": ...}`."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that have a name of their own, such as `eos_token` or `image_token`."""
    extra = config.get("extra_special_tokens")
    entries = {**(extra if isinstance(extra, Mapping) else {}), **config}
    texts = {key: _token_text(value) for key, value in entries.items() if key.endswith("_token")}
    return {key: text for key, text in texts.items() if text is not None}


def _listed_tokens(config: Mapping[str, Any]) -> frozenset[str]:
    values: list[object] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        entry = config.get(key)
        values += entry.values() if isinstance(entry, Mapping) else entry if isinstance(entry, list) else ()
    return frozenset(text for text in map(_token_text, values) if text is not None)


def _configured(config: Mapping[str, Any]) -> dict[int, AddedToken]:
    entries = config.get("added_tokens_decoder") or {}
    where = f"{_CONFIG}, added_tokens_decoder"
    try:
        return {
            int(i): AddedToken.parse(entry, where)
            for i, entry in sorted(entries.items(), key=lambda e: int(e[0]))
        }
    except (AttributeError, ValueError) as error:
        raise TokenizerError(f"{where}: must map ids to added tokens") from error


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str:
    """Return the chat template, from the first place that has one."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    beside = _read_object(folder / "chat_template.json")
    for name, template in (
        ("chat_template.json", beside.get("chat_template")),
        (_CONFIG, config.get("chat_template")),
    ):
        if isinstance(template, list):
            named = {each.get("name"): each.get("template") for each in template if isinstance(each, Mapping)}
            template = named.get("default")
            if template is None:
                raise TokenizerError(f'{name}, chat_template: a list must have a template named "default"')
        if isinstance(template, str):
            return template
        if template is not None:
            raise TokenizerError(f"{name}, chat_template: must be a string or a list of named templates")
    raise TokenizerError(
        "the tokenizer has no chat template: it belongs in chat_template.jinja, chat_template.json or"
        f" {_CONFIG} under chat_template"
    )


def _convert(folder: Path) -> bytes:
    """Let transformers make a `tokenizer.json` of files that only it can read."""
    try:
        from transformers import AutoTokenizer  # an extra: half a gigabyte
    except ImportError as error:
        raise TokenizerError(
            f"the folder has neither {TOKENIZER_JSON} nor a SentencePiece .model",
            hint='install "structured-server[transformers]", which can read some other files',
        ) from error
    try:
        converted: str = AutoTokenizer.from_pretrained(str(folder)).backend_tokenizer.to_str()
    except Exception as error:  # whatever the files provoke
        raise TokenizerError(
            f"the folder has neither {TOKENIZER_JSON} nor a SentencePiece .model, and transformers cannot"
            f" read it: {type(error).__name__}: {error}"
        ) from error
    return converted.encode()
