"""Typed questions, and the JSON that they are sent as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

Text = str | dict[str, Any] | list[Any]
"""What is asked, or what an option means: text, or JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstain:
    """Limits beyond which a question is not decided; None is no limit."""

    min_top_probability: float | None = None
    max_normalized_entropy: float | None = None
    min_label_mass: float | None = None

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        return _said(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(ABC):
    """What every type of question has: what is asked, when to abstain, and what comes before it."""

    kind: ClassVar[str]

    instructions: Text | None = None
    abstain: Abstain | None = None
    aliases: Mapping[str, str] | None = None
    depends_on: Sequence[str] | None = None
    ask_if: Mapping[str, Sequence[bool | int | str]] | None = None
    alone: bool | None = None

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return it as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noul(Question):
    """A yes/no question. The answer is yes from the `threshold` up."""

    kind: ClassVar[str] = "noul"

    true: Text | None = None
    false: Text | None = None
    threshold: float | None = None

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        said = _said(self)
        criteria = {name: said.pop(name) for name in ("true", "false") if name in said}
        return {"type": self.kind, **said, **({"criteria": criteria} if criteria else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Question):
    """One of several options: their names, or each with what it means."""

    kind: ClassVar[str] = "choice"

    options: Sequence[str] | Mapping[str, Text | None]

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        said = _said(self)
        options = said.pop("options")
        criteria = dict(options) if isinstance(options, Mapping) else dict.fromkeys(options)
        return {"type": self.kind, **said, "criteria": criteria}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Question):
    """A rubric of levels, from the lowest, which counts 0."""

    kind: ClassVar[str] = "score"

    levels: Sequence[Text]

    def body(self) -> dict[str, Any]:
        """Return it as JSON."""
        said = _said(self)
        levels = said.pop("levels")
        return {"type": self.kind, **said, "criteria": list(levels)}


Questions = Mapping[str, Question | Mapping[str, Any]]
"""By id: typed questions, or their JSON."""


def bodies_of(questions: Questions) -> dict[str, Any]:
    """Return questions as JSON."""
    return {
        name: dict(question) if isinstance(question, Mapping) else question.body()
        for name, question in questions.items()
    }


def _said(value: Any) -> dict[str, Any]:
    """Return the fields that are not left out."""
    found = {each.name: getattr(value, each.name) for each in fields(value)}
    return {
        name: each.body() if isinstance(each, Abstain) else each
        for name, each in found.items()
        if each is not None
    }
