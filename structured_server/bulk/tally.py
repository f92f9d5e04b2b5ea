"""What the rows of an output come to: counts and sums, whose number does not depend on that of the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from structured_server.bulk.flat import DECIDED, ERROR, FAILED, STATUS, UNDECIDED, Questions
from structured_server.bulk.gold import Gold
from structured_server.bulk.lines import cell

Record = Mapping[str, Any]


class _Question:
    def __init__(self, gold: Gold | None) -> None:
        self.answers: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.entropy = 0.0
        self.read = 0
        self.gold = gold

    def summary(self) -> dict[str, Any]:
        asked = self.statuses[DECIDED] + self.statuses["abstained"]
        return {
            "answers": dict(self.answers.most_common()),
            "abstained": self.statuses["abstained"],
            "skipped": self.statuses["skipped"],
            "undecided_share": self.statuses["abstained"] / asked if asked else None,
            "mean_entropy": self.entropy / self.read if self.read else None,
            "gold": self.gold.summary() if self.gold else None,
        }


class Tally:
    """Counts rows of an output, just made or read back. `gold`: the column of right answers by question."""

    def __init__(self, questions: Questions, prefix: str, gold: Mapping[str, str]) -> None:
        self._questions = {
            name: _Question(Gold(question) if name in gold else None) for name, question in questions.items()
        }
        self._kinds = {name: question.get("type") for name, question in questions.items()}
        self._prefix = prefix
        self._gold = gold
        self._statuses: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """Rows by what became of them."""
        return {"rows": self._statuses.total()} | {
            status: self._statuses[status] for status in (DECIDED, UNDECIDED, FAILED)
        }

    def add(self, record: Record) -> None:
        """Count a row; numbers may be text."""
        status = str(record[self._prefix + STATUS])
        self._statuses[status] += 1
        if status == FAILED:
            self._errors[str(record[self._prefix + ERROR]).partition(":")[0]] += 1
            return
        for name, tally in self._questions.items():
            self._add(name, tally, record)

    def summary(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            **self.counts,
            "errors": dict(self._errors.most_common()),
            "questions": {name: tally.summary() for name, tally in self._questions.items()},
        }

    def _add(self, name: str, tally: _Question, record: Record) -> None:
        column = self._prefix + name
        status = str(record[f"{column}.status"])
        tally.statuses[status] += 1
        answer = record[column] or None
        p = _number(record[f"{column}.p"])
        if answer is not None:
            tally.answers[answer] += 1
        entropy = _number(record[f"{column}.entropy"])
        if entropy is not None:
            tally.entropy += entropy
            tally.read += 1
        if tally.gold is not None and status != "skipped":
            if answer == "no" and p is not None and self._kinds[name] not in ("choice", "score"):
                p = 1 - p
            tally.gold.add(answer, p, cell(record.get(self._gold[name])))


def _number(value: Any) -> float | None:
    return None if value is None or value == "" else float(value)
