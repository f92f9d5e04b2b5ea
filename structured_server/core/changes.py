"""What moves numbers between two question sets that the same server would read.

A question's numbers move where the bytes of its reads do: its canvas, its prompt, its noise, how often it is
read, what is done to what comes back. Thresholds and limits are held against numbers and move none of them,
unless later questions go on from the answer; ids that the model is not shown move nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields

from structured_server.core.findings import some
from structured_server.core.lint_facts import Facts
from structured_server.core.plan import Group
from structured_server.core.policy import ByType
from structured_server.core.prompt import Asked
from structured_server.core.question_changes import differences
from structured_server.core.questions import Question, Score

# These act through the canvases and prompts that they lead to, so they are looked for there.
_INDIRECT = frozenset({"keys", "isolate", "rotate"})


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not as it was. `question` is None where it concerns all.

    `moves` are the questions whose numbers it moves, in the new set's order.
    """

    code: str
    message: str
    question: str | None
    moves: tuple[str, ...]


def find_changes(old: Facts, new: Facts) -> tuple[Change, ...]:
    """Return what moves numbers from the old set to the new one.

    Questions are matched by id, and those whose id is gone or new by what they say.
    """
    return tuple(_Comparison(old, new).changes())


@dataclass(frozen=True, slots=True)
class _Place:
    """A question where it is read."""

    group: Group
    asked: Asked


class _Comparison:
    def __init__(self, old: Facts, new: Facts) -> None:
        self._old = old
        self._new = new
        self._was = _places(old)
        self._is = _places(new)
        self._origin = _matched(self._was, self._is)  # by the new id: the old one
        self._renamed = {before: now for now, before in self._origin.items()}
        self._moved = frozenset(
            now
            for now, before in self._origin.items()
            if _said(self._was[before].group) != _said(self._is[now].group)
            or _index(self._was[before], before) != _index(self._is[now], now)
        )

    def changes(self) -> Iterator[Change]:
        """Yield the changes: those of how all is read, those of each question, those of the canvases."""
        found = [*self._reading(), *self._questions(), *self._groups()]
        yield from found
        covered = {name for change in found for name in change.moves}
        for name in self._new_order(self._moved - covered):
            yield Change("prompt", "What stands around it in its prompt is not the same.", name, (name,))

    def _reading(self) -> Iterator[Change]:
        old, new = self._old, self._new
        kept = self._new_order(self._origin)
        for each in fields(new.plan.options):
            before, now = getattr(old.plan.options, each.name), getattr(new.plan.options, each.name)
            if before != now and each.name not in _INDIRECT:
                yield _of_read(each.name, before, now, kept)
        if old.plan.options.rotate != new.plan.options.rotate and _draws_again(old, new):
            turned = [name for name in kept if not isinstance(self._is[name].asked.question, Score)]
            moves = [name for name in kept if self._shares_canvas(name, turned)]
            if moves:
                yield _of_read("rotate", old.plan.options.rotate, new.plan.options.rotate, moves)
        if old.plan.options.keys != new.plan.options.keys:
            moves = [n for n in kept if self._is[n].asked.key != self._was[self._origin[n]].asked.key]
            if moves:
                yield _of_read("keys", old.plan.options.keys, new.plan.options.keys, moves)
        if old.plan.isolated != new.plan.isolated:
            moves = [n for n in kept if n in self._moved and self._company(n) != self._former_company(n)]
            if moves:
                yield _of_read("isolate", old.plan.isolated, new.plan.isolated, moves)
        yield from self._policy(kept)

    def _policy(self, kept: tuple[str, ...]) -> Iterator[Change]:
        old, new = self._old, self._new
        before, now = old.policy, new.policy
        if not _masked(new):
            if before.samples != now.samples:
                yield _of_read("samples", before.samples, now.samples, kept)
            elif now.samples == "auto":
                yield from self._by_type(
                    "entropy_threshold", before.entropy_thresholds, now.entropy_thresholds, in_canvas=True
                )
                moves = [n for n in kept if _may_extend(old, self._origin[n]) != _may_extend(new, n)]
                if moves:
                    yield Change(
                        "read.max_reads",
                        f"Within the limit of reads auto draws other questions again: {some(moves)}.",
                        None,
                        tuple(moves),
                    )
            if old.seed != new.seed:
                yield _of_read("seed", old.seed, new.seed, kept)
        yield from self._by_type("temperature", before.temperatures, now.temperatures)
        if old.long_state != new.long_state:
            message = f"read.long_state is {new.long_state}, was {old.long_state}: this moves the numbers of "
            yield Change("read.long_state", f"{message}states that do not fit.", None, kept)

    def _by_type(
        self, name: str, before: ByType, now: ByType, *, in_canvas: bool = False
    ) -> Iterator[Change]:
        """Compare a number for each type, where a question has it, or shares its canvas with one that has."""
        kept = self._new_order(self._origin)
        for each in fields(ByType):
            first, second = getattr(before, each.name), getattr(now, each.name)
            named = [n for n in self._is if self._is[n].asked.question.kind == each.name]
            moves = [n for n in kept if (self._shares_canvas(n, named) if in_canvas else n in named)]
            if first != second and moves:
                yield _of_read(name, first, second, moves, f" for questions of type {each.name}")

    def _questions(self) -> Iterator[Change]:
        for name in self._is:
            if name not in self._origin:
                yield Change("question_added", "It is new: there are no numbers that could move.", name, ())
                continue
            before, now = self._was[self._origin[name]].asked, self._is[name].asked
            found = list(differences(before, now))
            if self._old.plan.options.keys == self._new.plan.options.keys and before.key != now.key:
                message = f"The model sees it as {now.key!r}, before as {before.key!r}."
                found.append(("id", message))
            judged_alike = _judged(before.question) == _judged(now.question)
            if found or not judged_alike:
                reached = tuple(n for n in self._is if n in self._moved and self._sees(n, name))
                for code, message in found:
                    yield Change(code, message, name, reached)
                later = tuple(n for n in reached if name in self._given(n))
                if later and not judged_alike:
                    message = (
                        "Its threshold, limits or conditions differ, and later questions see its answer."
                    )
                    yield Change("earlier_answer", message, name, later)
            given, was = self._given(name), self._former_given(name)
            if given != was:
                message = f"It is answered after {some(given)}; before, after {some(was)}."
                yield Change("depends_on", message, name, (name,))
        for name in self._was:
            if name not in self._renamed:
                yield Change("question_removed", "It is gone.", name, ())

    def _groups(self) -> Iterator[Change]:
        for group in self._new.plan.groups:
            moved = tuple(name for name in group.identifiers if name in self._moved)
            if not moved:
                continue
            first = moved[0]
            now, before = self._company(first), self._former_company(first)
            if set(now) != set(before) and self._old.plan.isolated == self._new.plan.isolated:
                message = f"Now {_beside(first, now)}; before, {_beside(first, before)}."
                yield Change("groups", message, first, moved)
            elif set(now) == set(before) and now != before:
                message = f"{some(now)} stand in another order in their canvas than before."
                yield Change("order", message, first, moved)
            width, was = group.canvas.width, self._was[self._origin[first]].group.canvas.width
            if width != was:
                message = f"Its canvas has {width} tokens, before {was}."
                yield Change("canvas_width", message, first, moved)

    def _new_order(self, names: Iterable[str]) -> tuple[str, ...]:
        wanted = frozenset(names)
        return tuple(name for name in self._is if name in wanted)

    def _shares_canvas(self, name: str, others: Iterable[str]) -> bool:
        return not frozenset(self._company(name)).isdisjoint(others)

    def _sees(self, name: str, other: str) -> bool:
        """Tell whether a question's prompt speaks of the other one."""
        return other in self._company(name) or other in self._given(name)

    def _company(self, name: str) -> tuple[str, ...]:
        return self._is[name].group.identifiers

    def _former_company(self, name: str) -> tuple[str, ...]:
        """Return the questions of the canvas in which it was, by the names that they have now."""
        return self._now(self._was[self._origin[name]].group.identifiers)

    def _given(self, name: str) -> tuple[str, ...]:
        return tuple(other for other, _ in self._is[name].group.given)

    def _former_given(self, name: str) -> tuple[str, ...]:
        return self._now(other for other, _ in self._was[self._origin[name]].group.given)

    def _now(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(self._renamed.get(name, name) for name in names)


def _places(facts: Facts) -> dict[str, _Place]:
    """Return where each question is read, in the caller's order."""
    found = {
        name: _Place(group, asked)
        for group in facts.plan.groups
        for name, asked in zip(group.identifiers, group.asked, strict=True)
    }
    return {name: found[name] for name, _ in facts.plan.schema.questions}


def _matched(was: Mapping[str, _Place], now: Mapping[str, _Place]) -> dict[str, str]:
    """Return for each question, by its id, the id that it had: the same, or that of an equal one now gone."""
    gone = [name for name in was if name not in now]
    matched = {}
    for name, place in now.items():
        if name in was:
            matched[name] = name
            continue
        content = _content(place.asked.question)
        twin = next((other for other in gone if _content(was[other].asked.question) == content), None)
        if twin is not None:
            gone.remove(twin)
            matched[name] = twin
    return matched


def _said(group: Group) -> object:
    """Return all of a group that decides its prompt, its canvas and its noise, beside the read options."""
    return (
        [(each.key, each.labels, each.question) for _, each in group.given],
        [(each.key, each.labels, _content(each.question)) for each in group.asked],
        group.canvas,
    )


def _index(place: _Place, name: str) -> int:
    return place.group.identifiers.index(name)


def _content(question: Question) -> object:
    """Return what a question says; how its numbers are judged is no part of it."""
    return (question.kind, question.instructions, question.options, question.aliases)


def _judged(question: Question) -> object:
    return (getattr(question, "threshold", None), question.limits, question.conditions)


def _of_read(name: str, before: object, now: object, moves: Iterable[str], which: str = "") -> Change:
    message = f"read.{name} is {_shown(now)}, was {_shown(before)}{which}."
    return Change(f"read.{name}", message, None, tuple(moves))


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _beside(name: str, canvas: tuple[str, ...]) -> str:
    others = [other for other in canvas if other != name]
    return f"it shares a canvas with {some(others)}" if others else "it is read apart"


def _masked(facts: Facts) -> bool:
    return facts.plan.options.slot_fill == "mask"


def _draws_again(*facts: Facts) -> bool:
    return any(each.policy.samples != 1 and not _masked(each) for each in facts)


def _may_extend(facts: Facts, name: str) -> bool:
    groups = zip(facts.plan.groups, facts.may_extend, strict=True)
    return next(may for group, may in groups if name in group.identifiers)
