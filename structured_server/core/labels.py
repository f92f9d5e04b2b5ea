"""Labels: the single token that stands for an option in the canvas.

A label is the option's own word where every option of the question is one token in its place, otherwise an
alias (a letter, for a score a digit) that the prompt explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice, product
from string import ascii_uppercase, digits

from structured_server.core.questions import Question
from structured_server.core.template import TemplateStyle, differing_position, render_answer
from structured_server.core.tokens import Tokenizer
from structured_server.errors import InvalidQuestion


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
    fresh = (alias for alias in _alias_family(question) if alias not in taken)
    for family in (fresh, _alias_family(question)):
        usable = (alias for alias in family if place.holds(alias))
        aliases = tuple(islice(usable, len(options)))
        if len(aliases) == len(options):
            return aliases
    raise InvalidQuestion(
        f"has {len(options)} options, more than this tokenizer has labels for.", path=("criteria",)
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of one question's label in an answer that holds only this question."""

    tokenizer: Tokenizer
    style: TemplateStyle
    key: str

    def holds_all(self, words: Sequence[str]) -> bool:
        """Tell whether each word is one token here, at one position, and none a variant of another."""
        found = [self._find(word) for word in words]
        positions = {place[0] for place in found if place is not None}
        tokens = {tuple(self.tokenizer.variants(place[1])) for place in found if place is not None}
        return None not in found and len(positions) == 1 and len(tokens) == len(words)

    def holds(self, word: str) -> bool:
        """Tell whether the word is one token here."""
        return self._find(word) is not None

    def _find(self, word: str) -> tuple[int, int] | None:
        """Return the word's position and id if it is one whole token here, by comparison with a letter."""
        if not word.isprintable() or '"' in word or "\\" in word:
            return None
        ids = self._encode(word)
        position = differing_position(ids, self._encode("A" if word != "A" else "B"))
        if position is None or self.tokenizer.token_text(ids[position]).strip() != word:
            return None
        return position, ids[position]

    def _encode(self, word: str) -> Sequence[int]:
        return self.tokenizer.encode(render_answer(self.style, [(self.key, word)]))


def _alias_family(question: Question) -> Iterator[str]:
    if question.kind == "score" and len(question.options) <= len(digits):
        yield from digits
    yield from ascii_uppercase
    yield from ("".join(pair) for pair in product(ascii_uppercase, repeat=2))


def _bad_alias(place: _Place, question: Question) -> InvalidQuestion:
    for name, label in question.aliases:
        if not place.holds(label):
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
