"""Questions about a vocabulary's entries: which are variants of a label, and which may serve as noise."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache

from structured_server.tokenizer.model import TokenModel
from structured_server.tokenizer.words import reaches_across

# Entries that vocabularies reserve without always listing them as added tokens.
_RESERVED = re.compile(
    r"[<\[][|｜]?[\w▁-]*(unused|reserved|image|audio|video|vision|mask|pad|special|extra_id)[\w▁-]*[|｜]?[>\]]",
    re.IGNORECASE,
)
_MANY_LABELS = 8192


class Vocabulary:
    """The entries of a token model.

    Only what cannot be looked up is kept: the ids for noise, and the pairs of white space that
    surround entries somewhere in the vocabulary (a few hundred).
    """

    def __init__(self, model: TokenModel) -> None:
        self._model = model
        self.noise_ids: Sequence[int]
        self.size: int
        self._affixes: frozenset[tuple[str, str]]
        self.across: tuple[str, ...] = ()  # of models that join: entries that reach across pieces of a text
        self._survey()
        self._variants = lru_cache(_MANY_LABELS)(self._look_up_variants)

    def text(self, token_id: int) -> str:
        """Return what a token reads as, for people; an id without an entry reads as its number."""
        entry = self._model.entry(token_id)
        if entry is None:
            return f"<id {token_id}>"
        if token_id in self._model.added and entry.strip("▁"):
            return entry
        return self._model.spelling.readable(entry)

    def joined(self, ids: Iterable[int]) -> str:
        """Return what tokens read as together; ids without an entry are left out."""
        entries = (self._model.entry(token_id) for token_id in ids)
        return self._model.spelling.joined(entry for entry in entries if entry is not None)

    def variants(self, label_id: int) -> tuple[int, ...]:
        """Return the ids, ascending, of the entries equal to this one after stripping white space.

        Case counts; control tokens and pieces of characters are nobody's variants.
        """
        return self._variants(label_id)

    def _survey(self) -> None:
        spelling, added = self._model.spelling, self._model.added
        noise, affixes, token_id = array("I"), {("", "")}, -1
        joins = self._model.by_joining
        for token_id, entry in self._model.entries():
            if joins and reaches_across(entry):
                self.across += (entry,)
            text = None if token_id in added else spelling.text(entry)
            if text is None or not (core := text.strip()):
                continue
            if len(core) != len(text):
                start = len(spelling.spell(text[: text.index(core)]))
                affixes.add((entry[:start], entry[start + len(spelling.spell(core)) :]))
            if not _RESERVED.fullmatch(core):
                noise.append(token_id)
        self.noise_ids, self.size, self._affixes = noise, token_id + 1, frozenset(affixes)

    def _look_up_variants(self, label_id: int) -> tuple[int, ...]:
        model = self._model
        entry = model.entry(label_id)
        text = None if entry is None or label_id in model.controls.ids else model.spelling.text(entry)
        if text is None or not (core := text.strip()):
            return (label_id,)
        spelled = model.spelling.spell(core)
        found = {model.find(f"{before}{spelled}{after}") for before, after in self._affixes}
        return tuple(sorted({label_id} | {i for i in found if i is not None and i not in model.controls.ids}))
