"""Control tokens' strings: finding them in text, taking text apart at them, making text harmless."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A token that no text may produce; `lstrip` and `rstrip` as in `AddedToken`."""

    id: int
    text: str
    lstrip: bool = False
    rstrip: bool = False


class ControlStrings:
    """The strings of a set of control tokens, found leftmost first and longest first.

    Strings are looked up by their first two characters and then by each length that occurs with
    these: thousands of strings must not make text of opening brackets costly.
    """

    def __init__(self, tokens: Iterable[ControlToken]) -> None:
        self._tokens = {token.text: token for token in tokens}
        lengths: dict[str, set[int]] = {}
        for text in self._tokens:
            lengths.setdefault(text[:2], {1} if text[0] in self._tokens else set()).add(len(text))
        self._lengths = {start: sorted(sizes, reverse=True) for start, sizes in lengths.items()}
        first = "".join(re.escape(char) for char in sorted({start[0] for start in lengths}))
        self._first = re.compile(f"[{first}]") if first else None
        self.ids = frozenset(token.id for token in self._tokens.values())

    def __iter__(self) -> Iterator[ControlToken]:
        return iter(self._tokens.values())

    def __getitem__(self, text: str) -> ControlToken:
        return self._tokens[text]

    def __contains__(self, text: str) -> bool:
        return text in self._tokens

    def find(self, text: str, start: int = 0) -> tuple[int, ControlToken] | None:
        """Return the first control token at or after `start` and where it begins."""
        if self._first is None:
            return None
        for match in self._first.finditer(text, start):
            at = match.start()
            for length in self._lengths.get(text[at : at + 2]) or self._lengths.get(match.group()) or ():
                if token := self._tokens.get(text[at : at + length]):
                    return at, token
        return None

    def split(self, text: str) -> Iterator[str | ControlToken]:
        """Take text apart into control tokens and the text between them, which is never empty."""
        start = 0
        while found := self.find(text, start):
            at, token = found
            if at > start:
                yield text[start:at]
            yield token
            start = at + len(token.text)
        if start < len(text):
            yield text[start:]

    def neutralise(self, text: str, filler: str) -> str:
        """Return the text with `filler` put inside every control token's string.

        The search goes on right after the filler, so strings that overlap are broken too. A control
        token of one character cannot be broken: it is replaced.
        """
        parts: list[str] = []
        start = 0
        while found := self.find(text, start):
            at, token = found
            parts.append(text[start:at])
            parts.append(text[at] + filler if len(token.text) > 1 else _REPLACEMENT)
            start = at + 1
        parts.append(text[start:])
        return "".join(parts)
