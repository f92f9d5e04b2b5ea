"""Conditions: which questions are answered before others, and whether a question is asked at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from structured_server.errors import InvalidQuestion


@dataclass(frozen=True, slots=True)
class Conditions:
    """When a question is asked, and beside which others.

    `depends_on` names questions that are answered first; the model sees their answers. `ask_if` names, for
    some of them, the keys of the answers with which this question is asked at all. `alone` reads it apart.
    """

    depends_on: tuple[str, ...] = ()
    ask_if: tuple[tuple[str, tuple[str, ...]], ...] = ()
    alone: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The ids of all questions that must be answered first, in the order in which they are named."""
        return tuple(dict.fromkeys((*self.depends_on, *(name for name, _ in self.ask_if))))


UNCONDITIONAL = Conditions()


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


class Conditional(Protocol):
    """What is needed to know of a question here."""

    @property
    def conditions(self) -> Conditions:
        """When it is asked."""

    @property
    def options(self) -> Sequence[_Keyed]:
        """Its possible answers."""


def stages(questions: Mapping[str, Conditional]) -> list[list[str]]:
    """Return the ids by stage: first those that need none, then those that need only those before them.

    Every stage keeps the caller's order. The conditions must have been checked.
    """
    left = dict(questions)
    found: list[list[str]] = []
    while left:
        stage = [name for name, each in left.items() if left.keys().isdisjoint(each.conditions.needs)]
        found.append(stage)
        for name in stage:
            del left[name]
    return found


def given(questions: Mapping[str, Conditional], identifier: str) -> tuple[str, ...]:
    """Return the questions that one needs, and those that they need, in the caller's order."""
    found: set[str] = set()
    waiting = [identifier]
    while waiting:
        for name in questions[waiting.pop()].conditions.needs:
            if name not in found:
                found.add(name)
                waiting.append(name)
    return tuple(name for name in questions if name in found)


def check_conditions(questions: Mapping[str, Conditional]) -> None:
    """Refuse conditions that cannot be met.

    Raises:
        InvalidQuestion: they name no question, or an answer that it cannot have, or questions wait for
            each other.
    """
    if all(question.conditions is UNCONDITIONAL for question in questions.values()):
        return
    for identifier, question in questions.items():
        conditions = question.conditions
        _check_names(identifier, "depends_on", conditions.depends_on, questions)
        _check_names(identifier, "ask_if", [name for name, _ in conditions.ask_if], questions)
        for name, answers in conditions.ask_if:
            keys = {option.key for option in questions[name].options}
            path = ("questions", identifier, "ask_if", name)
            if not answers:
                raise InvalidQuestion("needs at least one answer.", path=path)
            if not keys.issuperset(answers):
                raise InvalidQuestion(
                    "holds an answer that this question cannot have.",
                    path=path,
                    hint="A noul has true and false, a choice its options, a score its levels' indices.",
                )
    _refuse_cycles(questions)


def _check_names(
    identifier: str, field: str, names: Iterable[str], questions: Mapping[str, Conditional]
) -> None:
    for name in names:
        if name not in questions:
            raise InvalidQuestion(
                f"names {name!r}, which is no question of this request.",
                path=("questions", identifier, field),
            )


def _refuse_cycles(questions: Mapping[str, Conditional]) -> None:
    settled: set[str] = set()
    for start in questions:
        way: list[str] = []
        branches = [iter((start,))]
        while branches:
            name = next(branches[-1], None)
            if name is None:
                branches.pop()
                if way:
                    settled.add(way.pop())
            elif name in way:
                circle = " needs ".join([*way[way.index(name) :], name])
                raise InvalidQuestion(f"waits for itself: {circle}.", path=("questions", name, "depends_on"))
            elif name not in settled:
                way.append(name)
                branches.append(iter(questions[name].conditions.needs))
