"""From a folder or a hub id to a tokenizer that has checked itself."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from itertools import product, zip_longest
from pathlib import Path

from structured_server.core.tokens import ChatFormat, Kind, Segment
from structured_server.errors import TokenizerError
from structured_server.tokenizer.chat import FOLDED, learn_format, learn_thinking, learn_turn_close
from structured_server.tokenizer.fast import FastModel
from structured_server.tokenizer.files import (
    TOKENIZER_JSON,
    TokenizerFiles,
    find_folder,
    read_files,
    read_model,
)
from structured_server.tokenizer.loaded import LoadedTokenizer
from structured_server.tokenizer.model import TokenModel
from structured_server.tokenizer.template import ChatTemplate, Message, TemplateRefused
from structured_server.tokenizer.tokenizer_json import TokenizerJson

_MASKS = ("<mask>", "[MASK]", "<|mask|>", "<|mdm_mask|>")
_CHANNEL = ("<|channel>", "<channel|>")
_THOUGHT = "<|channel>thought\n<channel|>"
_PROBES = (
    'two lines\n{"a": [1, "b c"]}',
    "  indented, trailing  ",
    "\n\n\ttabs\tand\n\n\nnewlines\n",
    "Größe 北京 😀 é naïve",
    "<b>bold</b> a<b c>d </table>\n",
    '"',
)


def load_tokenizer(source: str, *, revision: str | None = None) -> LoadedTokenizer:
    """Load the tokenizer of a folder or of a hub id, at a revision of the hub's.

    The chat template is read once: a date in it stays that of the start.

    Raises:
        TokenizerError: files are missing or wrong, or prompts built of segments would differ from
            those of the chat template. The message names the source.
    """
    try:
        return _load(source, revision)
    except TokenizerError as error:
        known = source in error.message
        message = error.message if known else f"tokenizer {source}: {error.message}"
        raise TokenizerError(message, hint=error.hint) from error


def _load(source: str, revision: str | None) -> LoadedTokenizer:
    folder = find_folder(source, revision)
    files = read_files(folder)
    model, special, fingerprint = _load_model(folder, files)
    template = ChatTemplate(files.template, special)
    tokenizer = LoadedTokenizer(
        model,
        chat=learn_format(template),
        turn_close=learn_turn_close(template, model.controls).id,
        padding=_padding(model, special),
        mask=_mask(model, special),
        thought=_THOUGHT if all(channel in model.controls for channel in _CHANNEL) else None,
        thinking=learn_thinking(template),
        fingerprint=fingerprint,
    )
    _check(tokenizer, template)
    _return_memory()
    return tokenizer


def _load_model(folder: Path, files: TokenizerFiles) -> tuple[TokenModel, Mapping[str, str], str]:
    """Return the token model, the named special tokens and the fingerprint."""
    name, raw = read_model(folder)
    fingerprint = files.fingerprint(raw)
    if name == TOKENIZER_JSON:
        parts = TokenizerJson.parse(raw)
        del raw  # tens of megabytes, not to be held while the library makes its own of them
        return FastModel(parts, tuple(files.added.values()), files.named), files.special, fingerprint
    from structured_server.tokenizer.spm import SentencePieceModel  # most folders do without

    model = SentencePieceModel(raw, files.added, files.named, prefix_each=files.legacy, name=name)
    return model, {**model.special, **files.special}, fingerprint


def _padding(model: TokenModel, special: Mapping[str, str]) -> int:
    for name in ("eos_token", "pad_token"):
        token_id = model.find(special[name]) if name in special else None
        if token_id is not None:
            return token_id
    raise TokenizerError(
        "tokenizer_config.json must name an eos_token (or else a pad_token) that is in the vocabulary:"
        " it fills the canvas after the turn's end"
    )


def _mask(model: TokenModel, special: Mapping[str, str]) -> int | None:
    if "mask_token" in special and (named := model.find(special["mask_token"])) is not None:
        return named
    return next((model.controls[text].id for text in _MASKS if text in model.controls), None)


def _check(tokenizer: LoadedTokenizer, template: ChatTemplate) -> None:
    """Compare prompts made of segments with those of the template and the untouched tokenizer.

    Raises:
        TokenizerError: they differ; the message names the first difference.
    """
    probes = [probe for probe in _PROBES if tokenizer.controls.find(probe) is None]
    for system, user in product((None, "Be brief. {ü}"), probes):
        segments, messages = _conversation(tokenizer.chat, system, user)
        try:
            rendered = template.render(messages, reply=True)
        except TemplateRefused as error:
            raise TokenizerError(f"the chat template refuses a plain message: {error}") from error
        if (built := "".join(segment.text for segment in segments)) != rendered:
            at = next(i for i, (a, b) in enumerate(zip_longest(built, rendered)) if a != b)
            raise TokenizerError(
                "the chat template does not put fixed text around its messages:"
                f" at character {at} it gives {rendered[at : at + 40]!r}, not {built[at : at + 40]!r}"
            )
        ours, theirs = tokenizer.encode_prompt(segments), tokenizer.encode_like_engine(rendered)
        if list(ours) != theirs:
            at, (our, their) = next(
                (i, pair) for i, pair in enumerate(zip_longest(ours, theirs)) if pair[0] != pair[1]
            )
            raise TokenizerError(
                "prompts cannot be tokenised safely with this tokenizer: taken apart at its control tokens,"
                f" the chat template's text gives other ids: position {at} is {_named(tokenizer, our)}, but"
                f" {_named(tokenizer, their)} in the whole"
            )


def _return_memory() -> None:
    """Give freed memory back to the system, where the C library is one that keeps it.

    Reading a vocabulary of 262,144 entries leaves 270 MB behind that glibc would hold for good.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _named(tokenizer: LoadedTokenizer, token_id: int | None) -> str:
    return "the end" if token_id is None else f"{token_id} ({tokenizer.token_text(token_id)!r})"


def _conversation(chat: ChatFormat, system: str | None, user: str) -> tuple[list[Segment], list[Message]]:
    """Return a conversation as segments, and as the messages that the template gets."""
    text = user.strip() if chat.strips else user
    folds = chat.start == chat.start_user and chat.middle == FOLDED
    if system is None:
        segments = [Segment(Kind.CONTROL, chat.start_user)]
        messages = [{"role": "user", "content": user}]
    else:
        segments = [
            Segment(Kind.CONTROL, chat.start),
            Segment(Kind.TEXT, system),
            Segment(Kind.CONTROL, chat.middle),
        ]
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        if folds:
            messages = [{"role": "user", "content": f"{system}{chat.middle}{text}"}]
    return [*segments, Segment(Kind.STATE, text), Segment(Kind.CONTROL, chat.end)], list(messages)
