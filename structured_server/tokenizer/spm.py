"""Folders with only a SentencePiece `.model`.

The model file itself is edited: control symbols, which SentencePiece would find in any text, become
pieces that nothing matches, and one piece is added that stands for "a control token was here".
Text between such marks is normalised just as it is in mid-prompt: no dummy prefix, no white space
taken off its ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from structured_server.errors import TokenizerError
from structured_server.tokenizer.added import AddedToken
from structured_server.tokenizer.control import ControlStrings, ControlToken
from structured_server.tokenizer.model import well_formed
from structured_server.tokenizer.spelling import Spelling

_MARK = "\ufdd0"  # a noncharacter: no text may hold it
_REPLACEMENT = "\ufffd"
_ModelProto: Any = vars(sentencepiece_model_pb2)["ModelProto"]  # made at import time: without static types
_Piece: Any = _ModelProto.SentencePiece


class SentencePieceModel:
    """A token model read from a SentencePiece file."""

    spelling = Spelling.SENTENCEPIECE

    def __init__(
        self,
        raw: bytes,
        configured: Mapping[int, AddedToken],
        named: frozenset[str],
        *,
        prefix_each: bool,
        name: str,
    ) -> None:
        """Load the file's bytes.

        `configured` are the added tokens of `tokenizer_config.json` by id, `named` the strings that it
        names as special tokens; `prefix_each`: every text after a control token gets the dummy prefix
        too (transformers' `legacy`); `name` is the file's, for messages.

        Raises:
            TokenizerError: the bytes are no SentencePiece model.
        """
        model = _ModelProto()
        try:
            model.ParseFromString(raw)
        except DecodeError as error:
            raise TokenizerError(
                f"{name} is no SentencePiece model, and there is no tokenizer.json"
            ) from error
        if not model.pieces:
            raise TokenizerError(f"{name} is no SentencePiece model: it holds no pieces")

        controls: list[ControlToken] = []
        added: set[int] = set()
        for token_id, piece in enumerate(model.pieces):
            is_named = piece.piece in named and len(piece.piece) > 1
            if not is_named and piece.type in (_Piece.NORMAL, _Piece.BYTE):
                continue
            added.add(token_id)
            token = AddedToken(piece.piece, special=piece.type == _Piece.CONTROL)
            if piece.type not in (_Piece.UNKNOWN, _Piece.UNUSED) and not token.is_text(named):
                controls.append(ControlToken(token_id, piece.piece))
                piece.type = _Piece.CONTROL
        pieces = [piece.piece for piece in model.pieces]
        extra = _outside(configured, pieces)
        controls += (ControlToken(i, token.content, token.lstrip, token.rstrip) for i, token in extra.items())
        self._extra = {i: token.content for i, token in extra.items()}
        self.by_joining = False  # it makes the text anew before it takes it apart
        self.added = frozenset(added) | self._extra.keys()
        self.controls = ControlStrings(controls)
        self.unreachable = self.controls.ids
        self.special = {
            f"{kind}_token": pieces[token_id]
            for kind, token_id in _defaults(model).items()
            if 0 <= token_id < len(pieces)
        }

        self._prefix_each = prefix_each
        self._mark = len(pieces)
        model.pieces.add(piece=_MARK, score=0.0, type=_Piece.USER_DEFINED)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model.SerializeToString())
        except (RuntimeError, ValueError) as error:
            raise TokenizerError(f"{name} cannot be loaded: {error}") from error

    def encode(self, text: str, *, leading: bool) -> list[int]:
        """Tokenise text that stands at the start of a prompt (`leading`) or after a control token."""
        before = "" if leading or self._prefix_each else _MARK
        marked = f"{before}{text.replace(_MARK, _REPLACEMENT)}{_MARK}"
        try:
            raw = marked.encode()
        except UnicodeEncodeError:
            raw = well_formed(marked).encode()
        ids: list[int] = self._processor.EncodeAsIds(raw)
        start = ids.index(self._mark) + 1 if before else 0
        return ids[start:-1]

    def encode_original(self, text: str) -> None:  # noqa: ARG002 - the protocol's
        """Return None: engines read such files through conversions that differ from one another."""
        return

    def entry(self, token_id: int) -> str | None:
        """Return the vocabulary's entry, as it is spelled there."""
        if 0 <= token_id < self._mark:
            piece: str = self._processor.IdToPiece(token_id)
            return piece
        return self._extra.get(token_id)

    def entries(self) -> Iterator[tuple[int, str]]:
        """Yield every id that has an entry, ascending, with the entry."""
        for token_id in range(self._mark):
            yield token_id, self._processor.IdToPiece(token_id)
        yield from sorted(self._extra.items())

    def find(self, entry: str) -> int | None:
        """Return the id of an entry."""
        token_id = self._processor.PieceToId(entry)
        if self.entry(token_id) == entry:
            return token_id
        return next((i for i, text in self._extra.items() if text == entry), None)

    def normalise(self, text: str) -> str:
        """Return the text: control symbols are looked for before it is normalised."""
        return text


def _outside(configured: Mapping[int, AddedToken], pieces: Sequence[str]) -> dict[int, AddedToken]:
    """Return the configuration's added tokens that the model file does not list."""
    return {i: token for i, token in configured.items() if i >= len(pieces)}


def _defaults(model: Any) -> dict[str, int]:
    spec = model.trainer_spec
    return {"unk": spec.unk_id, "bos": spec.bos_id, "eos": spec.eos_id, "pad": spec.pad_id}
