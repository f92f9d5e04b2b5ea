"""Answers against right ones: accuracy, reliability, and risk against coverage, in a hundred counters."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, sqrt
from typing import Any

Z_95 = 1.959963984540054
COVERAGE_AT = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)

_FINE = 100
_COARSE = 10
_YES, _NO = frozenset(("yes", "true", "1", "y")), frozenset(("no", "false", "0", "n"))


def wilson(right: int, n: int) -> tuple[float, float]:
    """Return the 95 % score interval of a share of `n` > 0 independent cases.

    Wilson (1927), Probable inference, the law of succession, and statistical inference; formula as in Brown,
    Cai and DasGupta (2001), Interval estimation for a binomial proportion, section 3.1.1.
    """
    share, z = right / n, Z_95
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


class Gold:
    """What a question's answers come to beside the right ones."""

    def __init__(self, question: Mapping[str, Any]) -> None:
        self._kind = question.get("type")
        criteria = question.get("criteria")
        self._options = [str(each) for each in criteria] if isinstance(criteria, list | dict) else []
        self._n = [0] * _FINE
        self._right = [0] * _FINE
        self._p = [0.0] * _FINE
        self.undecided = self.unknown = self.unlabelled = 0

    def add(self, answer: str | None, p: float | None, gold: str) -> None:
        """Count a row. `p` is the probability of the answer, None with it where there is none."""
        if not gold.strip():
            self.unlabelled += 1
            return
        right = self._option(gold.strip())
        if right is None:
            self.unknown += 1
        elif answer is None or p is None:
            self.undecided += 1
        else:
            index = min(_FINE - 1, floor(p * _FINE + 1e-9))
            self._n[index] += 1
            self._p[index] += p
            self._right[index] += answer == right

    def summary(self) -> dict[str, Any]:
        """Return the figures; shares and intervals are null where nothing was decided."""
        n, right = sum(self._n), sum(self._right)
        return {
            "n": n,
            "right": right,
            "accuracy": right / n if n else None,
            "interval_95": list(wilson(right, n)) if n else None,
            "undecided": self.undecided,
            "unlabelled": self.unlabelled,
            "unknown": self.unknown,
            "reliability": self._reliability(),
            "coverage": [self._covered(at) for at in COVERAGE_AT] if n else [],
        }

    def _option(self, gold: str) -> str | None:
        """Return the option that a right answer names, None where there is no such option."""
        if self._kind not in ("choice", "score"):
            low = gold.lower()
            return "yes" if low in _YES else "no" if low in _NO else None
        if gold in self._options:
            return gold
        if self._kind == "score" and gold.isdecimal() and int(gold) < len(self._options):
            return self._options[int(gold)]
        return None

    def _reliability(self) -> list[dict[str, Any]]:
        """Return a line for each tenth of the probability that has rows.

        Bins of equal width: Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks,
        section 2.
        """
        step = _FINE // _COARSE
        lines = []
        for start in range(0, _FINE, step):
            part = slice(start, start + step)
            if n := sum(self._n[part]):
                lines.append(
                    {
                        "from": start / _FINE,
                        "to": (start + step) / _FINE,
                        "n": n,
                        "mean_p": sum(self._p[part]) / n,
                        "accuracy": sum(self._right[part]) / n,
                    }
                )
        return lines

    def _covered(self, at: float) -> dict[str, Any]:
        """Return which share of the labelled rows has an answer of this probability, and how many are wrong.

        Risk and coverage of a classifier that may abstain: El-Yaniv and Wiener (2010), On the foundations of
        noise-free selective classification, section 2.
        """
        part = slice(round(at * _FINE), None)
        n = sum(self._n[part])
        return {
            "min_p": at,
            "n": n,
            "coverage": n / (sum(self._n) + self.undecided),
            "risk": 1 - sum(self._right[part]) / n if n else None,
        }
