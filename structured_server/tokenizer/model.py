"""What the two kinds of tokenizer files have in common: text without control tokens goes in, ids come out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from structured_server.tokenizer.control import ControlStrings
from structured_server.tokenizer.spelling import Spelling


class TokenModel(Protocol):
    """Tokenises text; no id of `unreachable` comes out of `encode`, whatever the text."""

    controls: ControlStrings
    unreachable: frozenset[int]  # the ids that no text produces: those of the control tokens
    spelling: Spelling
    added: frozenset[int]  # ids of all added tokens, those that are mere text included
    by_joining: bool  # ids come of joining neighbours into entries of the vocabulary, and of nothing else

    def encode(self, text: str, *, leading: bool) -> list[int]:
        """Tokenise text that stands at the start of a prompt (`leading`) or after a control token."""

    def encode_original(self, text: str) -> list[int] | None:
        """Tokenise as the untouched files would, or None where that cannot be known."""

    def entry(self, token_id: int) -> str | None:
        """Return the vocabulary's entry, as it is spelled there."""

    def entries(self) -> Iterator[tuple[int, str]]:
        """Yield every id that has an entry, ascending, with the entry."""

    def find(self, entry: str) -> int | None:
        """Return the id of an entry."""

    def normalise(self, text: str) -> str:
        """Return the text as it is where control tokens are looked for."""


def well_formed(text: str) -> str:
    """Return the text with lone surrogates replaced, which no tokenizer can read."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
