"""Labels: the single token that stands for an option in the canvas.

A label is the option's own word where every option of the question is one token in its place, otherwise an
alias (a letter, for a score a digit) that the prompt explains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import product
from string import ascii_lowercase, ascii_uppercase, digits

from structured_server.core.questions import Question
from structured_server.core.template import TemplateStyle, differing_position, render_answer
from structured_server.core.tokens import Tokenizer
from structured_server.errors import InvalidQuestion

# A word that is one token stands in the frame of one of these: letters may take the space before them into
# their token where digits do not.
_REFERENCES = ("A", "B", "0", "1")


def choose_labels(
    tokenizer: Tokenizer, style: TemplateStyle, key: str, question: Question, taken: Set[str] = frozenset()
) -> tuple[str, ...]:
    """Choose a label for each option, in the options' order.

    `taken` holds labels of other questions in the canvas; aliases avoid them where they can, because
    neighbours that share letters copy each other.

    Raises:
        InvalidQuestion: the caller's alias is not one token, or the vocabulary has too few labels.
    """
    place = _Place(tokenizer, style, key)
    options = question.options
    mapped = dict(question.aliases)
    words = tuple(mapped.get(option.key, option.word) for option in options)
    if place.holds_all(words):
        return words
    if mapped:
        raise _bad_alias(place, question)
    aliases = place.first_alike(_alias_family(question, taken), len(options))
    if aliases is None:
        raise InvalidQuestion(
            f"has {len(options)} options, more than this tokenizer has labels for.", path=("criteria",)
        )
    return aliases


_Frame = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids around a label, before and after it."""


@dataclass(frozen=True, slots=True)
class _Label:
    """A word that is one token in its place."""

    frame: _Frame
    token_id: int


class _Place:
    """The place of one question's label in an answer that holds only this question."""

    def __init__(self, tokenizer: Tokenizer, style: TemplateStyle, key: str) -> None:
        self._tokenizer = tokenizer
        self._style = style
        self._key = key
        self._references = [self._encode(word) for word in _REFERENCES]

    def holds_all(self, words: Sequence[str]) -> bool:
        """Tell whether the words are one token each in the same frame, and none a variant of another."""
        found = [label for label in map(self.find, words) if label is not None]
        frames = {label.frame for label in found}
        tokens = {tuple(self._tokenizer.variants(label.token_id)) for label in found}
        return len(found) == len(words) and len(frames) == 1 and len(tokens) == len(words)

    def first_alike(self, words: Iterable[str], count: int) -> tuple[str, ...] | None:
        """Return the first `count` words that are one token each in the same frame."""
        by_frame: defaultdict[_Frame, list[str]] = defaultdict(list)
        for word in words:
            label = self.find(word)
            if label is not None:
                alike = by_frame[label.frame]
                alike.append(word)
                if len(alike) == count:
                    return tuple(alike)
        return None

    def find(self, word: str) -> _Label | None:
        """Return the word as a label if it is one whole token here, by comparison with another word."""
        if not word.isprintable() or '"' in word or "\\" in word:
            return None
        ids = self._encode(word)
        for reference in self._references:
            at = differing_position(ids, reference)
            if at is not None and self._tokenizer.token_text(ids[at]).strip() == word:
                return _Label((ids[:at], ids[at + 1 :]), ids[at])
        return None

    def _encode(self, word: str) -> tuple[int, ...]:
        return self._tokenizer.encode(render_answer(self._style, [(self._key, word)]))


def _alias_family(question: Question, taken: Set[str]) -> Iterator[str]:
    """Yield aliases, the most wanted first.

    Digits count levels as answers do; levels that carry numbers of their own would contradict them. The
    neighbours' labels come late, and letters that are options of this very question last: "A" must not stand
    for an option beside another one whose name is A.
    """
    count = len(question.options)
    words = {option.word.upper() for option in question.options}
    if question.kind == "score" and count <= len(digits):
        numbered = any(word[0].isdigit() for word in words)
        if not numbered and taken.isdisjoint(digits[:count]):
            yield from digits[:count]
    late: tuple[list[str], list[str]] = ([], [])
    for alias in _letters():
        if alias.upper() in words:
            late[1].append(alias)
        elif alias in taken:
            late[0].append(alias)
        else:
            yield alias
    for aliases in late:
        yield from aliases


def _letters() -> Iterator[str]:
    """Yield A to Z, AA to ZZ, aa to zz, Aa to Zz: of these a large vocabulary holds well over 1,000."""
    yield from ascii_uppercase
    for first, second in (
        (ascii_uppercase, ascii_uppercase),
        (ascii_lowercase, ascii_lowercase),
        (ascii_uppercase, ascii_lowercase),
    ):
        yield from map("".join, product(first, second))


def _bad_alias(place: _Place, question: Question) -> InvalidQuestion:
    for name, label in question.aliases:
        if place.find(label) is None:
            return InvalidQuestion(
                "is no single token of the model's vocabulary in its place, which a label must be.",
                path=("aliases", name),
                hint="Use a short common word or a letter.",
            )
    return InvalidQuestion(
        "leaves out options whose own words are no single tokens, or makes two labels alike.",
        path=("aliases",),
        hint="Give every option an alias of its own.",
    )
