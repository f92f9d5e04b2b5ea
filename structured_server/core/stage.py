"""Between two stages: what the readings answered, which groups come next, and what stands before them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from structured_server.core.answers import Answer, Answers, Reason, Skipped, fold_draws
from structured_server.core.plan import Compiler, Group
from structured_server.core.prompt import Answered
from structured_server.core.reading import GroupReading


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """A group whose turn has come, with the answers that stand before it."""

    group: Group
    answered: tuple[Answered, ...]


def open_stage(
    stage: Iterable[Group], answers: Answers, compiler: Compiler
) -> tuple[list[OpenGroup], dict[str, Skipped]]:
    """Return the groups of a stage that are read, and the questions of those that are not.

    A group is read unless a question did not have the answer that the group waits for. Questions before it
    that are not decided are left out: the model goes on from nothing that nobody may act on.
    """
    opened: list[OpenGroup] = []
    skipped: dict[str, Skipped] = {}
    for group in stage:
        reason = _broken_condition(group, answers)
        if reason is not None:
            members = zip(group.identifiers, group.asked, strict=True)
            skipped.update({name: Skipped(asked.question, reason) for name, asked in members})
            continue
        undecided = frozenset(name for name, _ in group.given if answers[name].status != "decided")
        if undecided:
            group = compiler.without(group, undecided)
        before = tuple(Answered(asked, _option(answers[name])) for name, asked in group.given)
        opened.append(OpenGroup(group, before))
    return opened, skipped


def answers_of(reading: GroupReading) -> dict[str, Answer]:
    """Fold the draws of a group into answers."""
    members = zip(reading.group.identifiers, reading.group.asked, strict=True)
    return {
        name: fold_draws(
            asked.question,
            [draw[index] for draw in reading.draws],
            first_entropy=reading.first_entropies[index],
            orders=min(len(reading.draws), len(asked.labels)) if _turns(reading, index) else 1,
        )
        for index, (name, asked) in enumerate(members)
    }


def _broken_condition(group: Group, answers: Answers) -> Reason | None:
    """Return why a group is not read: an answer that its condition wants is another one, or not decided."""
    for name, wanted in group.condition:
        answer = answers[name]
        if isinstance(answer, Skipped):
            return Reason("ask_if_skipped", None, list(wanted), name)
        if answer.status != "decided":
            return Reason("ask_if_undecided", None, list(wanted), name)
        if answer.key not in wanted:
            return Reason("ask_if_not_met", answer.key, list(wanted), name)
    return None


def _turns(reading: GroupReading, index: int) -> bool:
    """Tell whether a question's options were read in more than one order."""
    return any(each.asked[index].first for each in reading.job.arrangements)


def _option(answer: Answer | Skipped) -> int:
    assert isinstance(answer, Answer), "only what is decided stands before others"
    return answer.option
