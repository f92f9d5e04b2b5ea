"""A tokenizer whose slots can be read off the text: a character is one token, and so is a listed word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from structured_server.core.tokens import ChatFormat, Kind, Segment

# Single characters stand for control tokens in control segments; their ids are 0 to 6. In text and
# state the same characters are characters like any other.
_CONTROL = {
    name: chr(0xE000 + i) for i, name in enumerate(("eos", "close", "bos", "turn", "mask", "open", "shut"))
}
_WORDS_FROM = 16
_CHARACTERS_FROM = 10_000
_NOISE = range(0x4E00, 0x4F00)
LABELS = ("yes", "no", "networking", "compute", "security", "storage", "billing", "none", "low", "high")


class ToyTokenizer:
    """Implements `core.tokens.Tokenizer`. Word i has the id 16 + 2 i, with a space before it 17 + 2 i."""

    def __init__(
        self,
        words: Sequence[str] = LABELS,
        *,
        scaffold: bool = False,
        scaffold_in_prompt: bool = False,
        mask: bool = False,
        strips: bool = False,
    ) -> None:
        """Make the vocabulary; a scaffold is 10 tokens wide, and in the prompt only if told so."""
        spellings = [spelling for word in words for spelling in (word, f" {word}")]
        self._ids = {spelling: _WORDS_FROM + i for i, spelling in enumerate(spellings)}
        self._texts = {token_id: spelling for spelling, token_id in self._ids.items()}
        longest_first = sorted(map(re.escape, spellings), key=len, reverse=True)
        self._tokens = re.compile("|".join([*longest_first, "."]), re.DOTALL)
        self._between = re.compile(f"([{''.join(_CONTROL.values())}])")
        block = f"{_CONTROL['open']}thought\n{_CONTROL['shut']}"
        system, user, model = (f"{_CONTROL['turn']}{role}\n" for role in ("system", "user", "model"))
        bos, close = _CONTROL["bos"], f"{_CONTROL['close']}\n"
        self.chat = ChatFormat(
            start=f"{bos}{system}",
            middle=f"{close}{user}",
            end=f"{close}{model}{block if scaffold_in_prompt else ''}",
            start_user=f"{bos}{user}",
            strips=strips,
        )
        self.turn_close = list(_CONTROL).index("close")
        self.padding = list(_CONTROL).index("eos")
        self.mask = list(_CONTROL).index("mask") if mask else None
        self.scaffold = (
            self.encode_prompt([Segment(Kind.CONTROL, block)]) if scaffold or scaffold_in_prompt else ()
        )
        self.scaffold_in_prompt = scaffold_in_prompt
        self.thinking = replace(self.chat, start=f"{self.chat.start}think\n") if scaffold else None
        self.vocabulary_size = _CHARACTERS_FROM + 0x110000
        self.noise_ids: Sequence[int] = range(_CHARACTERS_FROM + _NOISE.start, _CHARACTERS_FROM + _NOISE.stop)
        self.fingerprint = "toy"

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokenise text in which no control token is recognised."""
        return tuple(
            self._ids.get(token, _CHARACTERS_FROM + ord(token[0])) for token in self._tokens.findall(text)
        )

    def encode_prompt(self, segments: Sequence[Segment]) -> tuple[int, ...]:
        """Tokenise a prompt as the joint text between control tokens."""
        ids: list[int] = []
        run = ""
        for segment in segments:
            control = segment.kind is Kind.CONTROL
            for part in self._between.split(segment.text) if control else (segment.text,):
                if control and part in _CONTROL.values():
                    ids += [*self.encode(run), ord(part) - 0xE000]
                    run = ""
                else:
                    run += part
        return (*ids, *self.encode(run))

    def variants(self, label_id: int) -> tuple[int, ...]:
        """Return the ids, ascending, equal to this one after stripping white space only."""
        word = self.token_text(label_id).strip()
        return tuple(sorted({label_id, *(self._ids[s] for s in (word, f" {word}") if s in self._ids)}))

    def text(self, ids: Sequence[int]) -> str:
        """Return what the tokens read as together, for people."""
        return "".join(map(self.token_text, ids))

    def token_text(self, token_id: int) -> str:
        """Return what the token reads as, for people."""
        if token_id < len(_CONTROL):
            return f"<{list(_CONTROL)[token_id]}>"
        return self._texts.get(token_id) or chr(max(0, token_id - _CHARACTERS_FROM))
