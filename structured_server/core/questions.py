"""Typed questions: frozen, hashable values that refuse nonsense in the constructor.

`InvalidQuestion.path` is relative to the question; whoever parsed the question puts the rest in front.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from structured_server.core.conditions import UNCONDITIONAL, Conditions, check_conditions
from structured_server.errors import InvalidQuestion, InvalidRequest

MAX_LEVELS = 26
MAX_OPTIONS = 1000
MAX_QUESTIONS = 400

Aliases = tuple[tuple[str, str], ...]
"""Pairs of an option's key and the caller's label for it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One possible answer.

    `key` is its name in answers ("true", an option's name, a level's index), `word` the text that the
    model is shown for it, `description` what the caller says that it means.
    """

    key: str
    word: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When to abstain; each limit is named after the response field that it bounds, all in [0, 1]."""

    min_top_probability: float | None = None
    max_normalized_entropy: float | None = None
    min_label_mass: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise InvalidQuestion(f"must be from 0 to 1, got {value}.", path=("abstain", name))


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Noul:
    """A yes/no question. The answer is yes where P(yes) >= `threshold`."""

    kind: ClassVar[Literal["noul"]] = "noul"

    instructions: str | None = None
    true: str | None = None
    false: str | None = None
    threshold: float = 0.5
    limits: Limits = NO_LIMITS
    aliases: Aliases = ()
    conditions: Conditions = UNCONDITIONAL

    def __post_init__(self) -> None:
        if not _says_something(self.instructions, self.true, self.false):
            raise InvalidQuestion(
                "is needed, or criteria for true or false: nothing says what is asked.",
                path=("instructions",),
            )
        if not 0 <= self.threshold <= 1:
            raise InvalidQuestion(f"must be from 0 to 1, got {self.threshold}.", path=("threshold",))
        _check_aliases(self.options, self.aliases)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """Yes first, then no."""
        return (Option("true", "yes", self.true), Option("false", "no", self.false))


@dataclass(frozen=True)
class Choice:
    """One of several options; `criteria` holds each name with its description, in the caller's order."""

    kind: ClassVar[Literal["choice"]] = "choice"

    instructions: str | None
    criteria: tuple[tuple[str, str | None], ...]
    limits: Limits = NO_LIMITS
    aliases: Aliases = ()
    conditions: Conditions = UNCONDITIONAL

    def __post_init__(self) -> None:
        if len(self.criteria) < 2:
            raise InvalidQuestion(
                f"needs at least 2 options, got {len(self.criteria)}.",
                path=("criteria",),
                hint="Use type noul for a yes/no question.",
            )
        if len(self.criteria) > MAX_OPTIONS:
            raise InvalidQuestion(
                f"may have at most {MAX_OPTIONS} options, got {len(self.criteria)}.", path=("criteria",)
            )
        names = [name for name, _ in self.criteria]
        if any(not name.strip() for name in names):
            raise InvalidQuestion("has an option with an empty name.", path=("criteria",))
        _refuse_duplicates([name.strip() for name in names], what="names the same option twice")
        _check_aliases(self.options, self.aliases)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The options in the caller's order."""
        return tuple(Option(name, name.strip(), description) for name, description in self.criteria)


@dataclass(frozen=True)
class Score:
    """A rubric: `levels` from the lowest to the highest, counted from 0."""

    kind: ClassVar[Literal["score"]] = "score"

    instructions: str | None
    levels: tuple[str, ...]
    limits: Limits = NO_LIMITS
    aliases: Aliases = ()
    conditions: Conditions = UNCONDITIONAL

    def __post_init__(self) -> None:
        if not 2 <= len(self.levels) <= MAX_LEVELS:
            raise InvalidQuestion(
                f"needs 2 to {MAX_LEVELS} levels, got {len(self.levels)}.", path=("criteria",)
            )
        for index, level in enumerate(self.levels):
            if not level.strip():
                raise InvalidQuestion("must not be empty.", path=("criteria", index))
        _refuse_duplicates([level.strip() for level in self.levels], what="holds the same level twice")
        _check_aliases(self.options, self.aliases)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The levels from the lowest, keyed by index."""
        return tuple(Option(str(index), level.strip()) for index, level in enumerate(self.levels))


Question = Noul | Choice | Score


@dataclass(frozen=True)
class Schema:
    """The questions of one decision, by id, in the caller's order.

    `context` is what the caller says about all of them.
    """

    questions: tuple[tuple[str, Question], ...]
    context: str | None = None

    def __post_init__(self) -> None:
        if not self.questions:
            raise InvalidRequest("needs at least one entry, got none.", path=("questions",))
        seen: set[str] = set()
        for identifier, _ in self.questions:
            if not identifier:
                raise InvalidRequest("has a question with an empty id.", path=("questions",))
            if identifier in seen:
                raise InvalidRequest("stands twice.", path=("questions", identifier))
            seen.add(identifier)
        if len(self.questions) > MAX_QUESTIONS:
            raise InvalidRequest(
                f"may have at most {MAX_QUESTIONS} entries, got {len(self.questions)}.",
                path=("questions",),
                hint="Ask in several requests: questions that are read apart lose nothing by it.",
            )
        check_conditions(dict(self.questions))

    def __len__(self) -> int:
        return len(self.questions)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Every request looks for its schema among those that are known, several times.
        return hash((self.questions, self.context))


def _says_something(*texts: str | None) -> bool:
    return any(text is not None and text.strip() for text in texts)


def _refuse_duplicates(words: list[str], *, what: str) -> None:
    first: dict[str, int] = {}
    for index, word in enumerate(words):
        if first.setdefault(word, index) != index:
            raise InvalidQuestion(f"{what} (entries {first[word]} and {index}).", path=("criteria",))


def _check_aliases(options: Iterable[Option], aliases: Aliases) -> None:
    keys = {option.key for option in options}
    labels: list[str] = []
    for key, label in aliases:
        if key not in keys:
            raise InvalidQuestion("is no option of this question, or stands twice.", path=("aliases", key))
        keys.remove(key)
        if not label or label != label.strip():
            raise InvalidQuestion("must be a word without white space around it.", path=("aliases", key))
        if label in labels:
            raise InvalidQuestion("is the alias of another option too.", path=("aliases", key))
        labels.append(label)
