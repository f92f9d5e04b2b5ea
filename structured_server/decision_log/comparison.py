"""A recorded decision beside the same one asked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_WHOLLY_DIFFERENT = 1.0


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one question's answers are apart: the largest difference of any option's probability."""

    question: str
    apart: float
    before: Any
    after: Any

    @property
    def changed(self) -> bool:
        """Whether what code acts on is another answer."""
        return bool(self.before != self.after)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One decision twice. `same_fingerprint` is whether nothing that moves numbers has changed."""

    identifier: str
    same_fingerprint: bool
    differences: tuple[Difference, ...]

    @property
    def apart(self) -> float:
        """The largest difference of all questions."""
        return max(each.apart for each in self.differences)

    @property
    def changed(self) -> tuple[Difference, ...]:
        """The questions with another answer."""
        return tuple(each for each in self.differences if each.changed)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Comparison:
    """Compare a recorded `/decide` response with a new one to the same questions."""
    return Comparison(
        before["id"],
        before["provenance"]["fingerprint"] == after["provenance"]["fingerprint"],
        tuple(
            Difference(name, _apart(each, after["answers"][name]), _said(each), _said(after["answers"][name]))
            for name, each in before["answers"].items()
        ),
    )


def _apart(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    one, other = before.get("probabilities"), after.get("probabilities")
    if one is None or other is None:  # skipped
        return 0.0 if one is other else _WHOLLY_DIFFERENT
    return float(max(abs(p - other[key]) for key, p in one.items()))


def _said(answer: Mapping[str, Any]) -> Any:
    return answer["answer"] if answer["status"] == "decided" else answer["status"]
