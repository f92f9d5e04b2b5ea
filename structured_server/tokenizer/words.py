"""Tokenising word by word, remembering words: for vocabularies in which that provably gives the same ids.

BPE joins neighbours into entries of its vocabulary and into nothing else. Where no entry reaches across the
places at which a text is cut, no join does, so that each piece comes out as it does within the whole. The few
entries that do reach across are looked for in each text. One that holds any of them is tokenised whole, and
so is one that holds the character that entries spell a space with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_PIECES = re.compile(r" *[^ \n]+| +|\n+")
_ACROSS = re.compile(r"[^ \n▁][ \n▁]|\n[^\n]|[ ▁]\n")
"""What an entry holds that may begin in one piece and end in another."""

SPACE = "▁"
MOST_ACROSS = 16
MOST_WORDS = 1 << 14  # some 7 MB
LONGEST_WORD = 32  # characters
LONGEST_TEXT = 32_768
"""Longer ones are tokenised by the library alone, which lets other threads run meanwhile: this takes 2 ms."""

LEARNED_AT_ONCE = 64
"""New words of one text that are tokenised by themselves; with more of them it is tokenised whole."""


def reaches_across(entry: str) -> bool:
    """Tell whether an entry may begin in one piece of a text and end in the next."""
    return _ACROSS.search(entry) is not None


class Words:
    """Tokenises with `encode`, piece by piece, and remembers the pieces that are words, up to a number."""

    def __init__(self, encode: Callable[[str], list[int]], across: Iterable[str]) -> None:
        """Take the entries that reach across pieces, as they are spelled in the vocabulary."""
        self._encode = encode
        strings = [SPACE, *(entry.replace(SPACE, " ") for entry in across)]
        self._whole = re.compile("|".join(map(re.escape, strings)))
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of the whole text."""
        if len(text) > LONGEST_TEXT or self._whole.search(text):
            return self._encode(text)
        known, pieces = self._known, _PIECES.findall(text)
        ids: list[int] = []
        try:
            for piece in pieces:
                ids += known[piece]
        except KeyError:
            return self._learn(text, pieces, known)
        return ids

    def _learn(self, text: str, pieces: list[str], known: dict[str, list[int]]) -> list[int]:
        unknown = [piece for piece in dict.fromkeys(pieces) if piece not in known]
        found = {piece: self._encode(piece) for piece in unknown[:LEARNED_AT_ONCE]}
        if len(known) + len(found) > MOST_WORDS:
            self._known = {}  # the common ones are soon back; other threads may still read the old ones
        self._known.update((piece, ids) for piece, ids in found.items() if len(piece) <= LONGEST_WORD)
        if len(found) < len(unknown):
            return self._encode(text)
        return [token_id for piece in pieces for token_id in found.get(piece) or known[piece]]
