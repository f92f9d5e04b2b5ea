"""Folders with a `tokenizer.json`: the `tokenizers` library, loaded once for two ways of reading.

The model (vocabulary and merges) is nearly all of such a file and is shared by up to three
tokenizers around it: one that knows no control token, one for the start of a prompt where that is
special, and the original, which knows all added tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tokenizers

from structured_server.errors import TokenizerError
from structured_server.tokenizer.added import AddedToken, merge_added
from structured_server.tokenizer.control import ControlStrings, ControlToken
from structured_server.tokenizer.model import well_formed
from structured_server.tokenizer.spelling import Spelling
from structured_server.tokenizer.tokenizer_json import WITHOUT_MODEL, TokenizerJson

_UNKNOWN_TEXT = "\ufdd0 \U00013080 \U0001fae8"  # a noncharacter, a hieroglyph, a recent emoji
_LARGEST_ID = 1 << 22
_SPACES_SPELLED = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_SPLIT_AT_SPACES = {
    "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False,
}  # fmt: skip
_REPLACEMENT = "\ufffd"


class FastModel:
    """A token model read from a `tokenizer.json`."""

    def __init__(self, file: TokenizerJson, configured: Sequence[AddedToken], named: frozenset[str]) -> None:
        """Load the file.

        `configured` are the added tokens of `tokenizer_config.json`, `named` the strings that it
        names as special tokens.

        Raises:
            TokenizerError: the file is not what the `tokenizers` library writes.
        """
        head = file.head
        self._model = _parse(file.model_only).model
        if resize := getattr(self._model, "_resize_cache", None):
            # It keeps the first 10,000 texts that it sees, whole where nothing splits them into words: those
            # of callers, none of which comes again. Runs of our own text are kept in `LoadedTokenizer`.
            resize(0)
        where = "tokenizer.json, added_tokens"
        tokens = merge_added(
            (AddedToken.parse(each, where) for each in head["added_tokens"] or ()), configured
        )
        known = {token.content for token in tokens}
        tokens += tuple(
            AddedToken(text, special=True)
            for text in sorted(named - known)
            if len(text) > 1 and self._model.token_to_id(text) is not None
        )
        kept = [token for token in tokens if token.is_text(named)]
        removed = [token for token in tokens if not token.is_text(named)]

        self.spelling = _spelling(head)
        self.by_joining = self._joins(head, kept)
        self._original = self._around(head, tokens)
        self._leading = self._around(head, kept)
        inner, differs = _without_first_prefix(head)
        self._inner = self._around(inner, kept) if differs else self._leading
        ids = {token.content: i for i, token in self._original.get_added_tokens_decoder().items()}
        self.added = frozenset(ids.values())
        self.controls = ControlStrings(
            ControlToken(ids[token.content], token.content, token.lstrip, token.rstrip) for token in removed
        )
        # Added tokens outside the model's vocabulary are numbered in the order in which they are added:
        # for want of the removed ones, kept ones got others' numbers.
        numbered = self._inner.get_added_tokens_decoder()
        self._renumbered = {i: ids[token.content] for i, token in numbered.items() if i != ids[token.content]}
        # What stands for any unknown character controls nothing.
        self.unreachable = self.controls.ids.difference(_ids(self._inner, _UNKNOWN_TEXT))
        self._normalises = any(token.normalized for token in removed)
        outside = sum(self._model.token_to_id(token.content) is None for token in tokens)
        self._entries = self._original.get_vocab_size(with_added_tokens=False) + outside

    def encode(self, text: str, *, leading: bool) -> list[int]:
        """Tokenise text that stands at the start of a prompt (`leading`) or after a control token."""
        tokenizer = self._leading if leading else self._inner
        ids = self._renumber_ids(_ids(tokenizer, text))
        return ids if self.unreachable.isdisjoint(ids) else self._encode_around_controls(tokenizer, text)

    def encode_original(self, text: str) -> list[int]:
        """Tokenise with every added token recognised, as the file says."""
        return _ids(self._original, text)

    def entry(self, token_id: int) -> str | None:
        """Return the vocabulary's entry, as it is spelled there."""
        return self._original.id_to_token(token_id)

    def entries(self) -> Iterator[tuple[int, str]]:
        """Yield every id that has an entry, ascending, with the entry."""
        token_id, left = 0, self._entries
        while left:
            if (entry := self._original.id_to_token(token_id)) is not None:
                left -= 1
                yield token_id, entry
            elif token_id > _LARGEST_ID:
                raise TokenizerError("tokenizer.json: the vocabulary's ids have a hole of millions")
            token_id += 1

    def find(self, entry: str) -> int | None:
        """Return the id of an entry."""
        return self._original.token_to_id(entry)

    def normalise(self, text: str) -> str:
        """Return the text as it is where control tokens are looked for."""
        normalizer = self._original.normalizer if self._normalises else None
        return text if normalizer is None else normalizer.normalize_str(text)

    def _around(self, head: Mapping[str, Any], added: Sequence[AddedToken]) -> tokenizers.Tokenizer:
        """Build a tokenizer around the shared model."""
        tokenizer = _parse(json.dumps({**head, "added_tokens": [], **WITHOUT_MODEL}).encode())
        tokenizer.model = self._model
        tokenizer.add_tokens(
            [
                tokenizers.AddedToken(
                    token.content,
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                    special=token.special,
                )
                for token in added
            ]
        )
        return tokenizer

    def _joins(self, head: Mapping[str, Any], kept: Iterable[AddedToken]) -> bool:
        """Tell whether this is BPE over all of a text, with bytes for what it does not know."""
        model = self._model
        return (
            isinstance(model, tokenizers.models.BPE)
            and not (model.dropout or model.ignore_merges)
            and not (model.continuing_subword_prefix or model.end_of_word_suffix)
            and model.byte_fallback
            and all(model.token_to_id(f"<0x{byte:02X}>") is not None for byte in range(256))
            and head["normalizer"] == _SPACES_SPELLED
            and head["pre_tokenizer"] in (None, _SPLIT_AT_SPACES)  # of which the normalizer leaves none
            and not any(token.lstrip or token.rstrip or token.single_word for token in kept)
        )

    def _renumber_ids(self, ids: list[int]) -> list[int]:
        return [self._renumbered.get(i, i) for i in ids] if self._renumbered else ids

    def _encode_around_controls(self, tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
        """Tokenise text in which the model itself reaches control tokens: take the text apart there.

        A vocabulary lists its control tokens too, and some models (Unigram, or BPE with merges that
        lead there) arrive at them without any help from the list of added tokens.
        """
        encoding = tokenizer.encode(text, add_special_tokens=False)
        ids = self._renumber_ids(encoding.ids)
        pieces: list[str] = []
        start = 0
        for token_id, (begin, end) in zip(ids, encoding.offsets, strict=True):
            if token_id not in self.unreachable or end == begin:
                continue
            if end - begin > 1:
                cut = (begin + end) // 2
                pieces.append(text[start:cut])
                start = cut
            else:  # one character alone is a control token: no text may hold it
                pieces += (text[start:begin], _REPLACEMENT)
                start = end
        if not pieces or text == _REPLACEMENT:
            return [token_id for token_id in ids if token_id not in self.unreachable]
        pieces.append(text[start:])
        return [token_id for piece in pieces for token_id in self.encode(piece, leading=False)]


def _ids(tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
    """Tokenise one text; as a batch, because that lets other threads run meanwhile."""
    try:
        return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    except TypeError:  # not valid Unicode
        return tokenizer.encode_batch_fast([well_formed(text)], add_special_tokens=False)[0].ids


def _parse(raw: bytes) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(
            f"tokenizer.json cannot be read by tokenizers {tokenizers.__version__}: {error}"
        ) from error


def _spelling(head: Mapping[str, Any]) -> Spelling:
    parts = json.dumps(
        [head[part] for part in ("normalizer", "pre_tokenizer", "decoder")], ensure_ascii=False
    )
    if '"ByteLevel"' in parts:
        return Spelling.BYTES
    return Spelling.SENTENCEPIECE if "▁" in parts or '"Metaspace"' in parts else Spelling.PLAIN


def _without_first_prefix(head: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the parts for text in mid-prompt, and whether they differ from those for its start.

    A Metaspace with `prepend_scheme: first` puts a space before the first text of a prompt only.
    """
    text = json.dumps(head["pre_tokenizer"])
    never = text.replace('"prepend_scheme": "first"', '"prepend_scheme": "never"')
    return {**head, "pre_tokenizer": json.loads(never)}, text != never
