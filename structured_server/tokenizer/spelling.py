"""How a vocabulary spells text: SentencePiece's "▁", the byte alphabet of GPT-2, or plainly."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def _byte_alphabet() -> dict[int, str]:
    """Return the visible character that stands for each byte in GPT-2's vocabulary.

    Bytes that are visible in Latin-1 stand for themselves; the others follow in order from U+0100.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}


_CHAR_OF_BYTE = _byte_alphabet()
_BYTE_OF_CHAR = {ord(char): byte for byte, char in _CHAR_OF_BYTE.items()}
_IN_ALPHABET = re.compile("[" + "".join(map(re.escape, _CHAR_OF_BYTE.values())) + "]*")


class Spelling(Enum):
    """The relation between a vocabulary's entries and the text they stand for."""

    SENTENCEPIECE = "▁ stands for a space"
    BYTES = "each character stands for a byte"
    PLAIN = "entries are text"

    def text(self, entry: str) -> str | None:
        """Return what an entry reads as, or None when it is only a piece of a character."""
        if self is Spelling.SENTENCEPIECE:
            return None if _BYTE_PIECE.fullmatch(entry) else entry.replace("▁", " ")
        if self is Spelling.PLAIN or not _IN_ALPHABET.fullmatch(entry):
            return entry
        try:
            return entry.translate(_BYTE_OF_CHAR).encode("latin-1").decode()
        except UnicodeDecodeError:
            return None

    def joined(self, entries: Iterable[str]) -> str:
        """Return what entries read as together, pieces of characters put together where they can be."""
        return b"".join(map(self._bytes, entries)).decode(errors="replace")

    def spell(self, text: str) -> str:
        """Return how the vocabulary spells a text."""
        if self is Spelling.SENTENCEPIECE:
            return text.replace(" ", "▁")
        if self is Spelling.BYTES:
            return "".join(_CHAR_OF_BYTE[byte] for byte in text.encode())
        return text

    def _bytes(self, entry: str) -> bytes:
        if self is Spelling.SENTENCEPIECE:
            if _BYTE_PIECE.fullmatch(entry):
                return bytes((int(entry[3:5], 16),))
            return entry.replace("▁", " ").encode("utf-8", "replace")
        if self is Spelling.BYTES and _IN_ALPHABET.fullmatch(entry):
            return entry.translate(_BYTE_OF_CHAR).encode("latin-1")
        return entry.encode("utf-8", "replace")

    def readable(self, entry: str) -> str:
        """Return what an entry reads as, for people: pieces of characters are shown as such."""
        text = self.text(entry)
        if text is not None:
            return text
        if self is Spelling.BYTES:
            return entry.translate(_BYTE_OF_CHAR).encode("latin-1").decode(errors="replace")
        return entry
