"""The written texts and their labels, as distributions over the options of each question.

A line is `TEAM SEVERITY URGENT IMPACT SENTIMENT ROLLBACK|text`. Letters and digits name options (several
share the label), `*` is uniform: there is no cue. `-` means that nobody has labelled it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"

TEAMS = {"c": "compute", "n": "networking", "s": "security", "t": "storage", "b": "billing"}
SEVERITIES = {"0": "none", "1": "minor", "2": "major", "3": "critical"}
SENTIMENTS = {"c": "calm", "w": "worried", "a": "angry"}
YES_NO = ("yes", "no")
# How sure a careful reader is; even clear cases are not certain.
_YES = {"y": 0.97, "p": 0.75, "m": 0.5, "*": 0.5, "q": 0.25, "n": 0.03}
_LINE = re.compile(r"(\S+) (\S+) (\S) (\S) (\S+) (\S)\|(.+)")

OPTIONS: dict[str, tuple[str, ...]] = {
    "urgent": YES_NO,
    "team": tuple(TEAMS.values()),
    "severity": tuple(SEVERITIES.values()),
    "customer_impact": YES_NO,
    "sentiment": tuple(SENTIMENTS.values()),
    "needs_rollback": YES_NO,
}
GATED = ("urgent", "team", "severity")


@dataclass(frozen=True)
class Example:
    """A text with a distribution over the options of each question that it is labelled for."""

    text: str
    targets: Mapping[str, tuple[float, ...]]

    @property
    def has_cue(self) -> bool:
        """Whether the text says anything about whose it is."""
        return len(set(self.targets["team"])) > 1

    @property
    def is_clear(self) -> bool:
        """Whether one team owns it."""
        return max(self.targets["team"]) > 0.99

    def answer(self, question: str) -> int:
        """Return the index of the labelled option."""
        target = self.targets[question]
        return target.index(max(target))


def parse(line: str) -> Example:
    """Read a line.

    Raises:
        ValueError: it does not have the form.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"no labelled text: {line[:60]!r}")
    team, severity, urgent, impact, sentiment, rollback, text = match.groups()
    targets = {
        "team": _share(team, TEAMS),
        "severity": _share(severity, SEVERITIES),
        "urgent": _yes_no(urgent),
    }
    if impact != "-":
        targets["customer_impact"] = _yes_no(impact)
    if sentiment != "-":
        targets["sentiment"] = _share(sentiment, SENTIMENTS)
    if rollback != "-":
        targets["needs_rollback"] = _yes_no(rollback)
    return Example(text.replace("\\n", "\n"), targets)


def read(*names: str) -> list[Example]:
    """Read files of the corpus folder."""
    return [parse(line) for name in names for line in _lines(CORPUS / f"{name}.txt")]


def training() -> list[Example]:
    """Read every written text that may be trained on."""
    return read(*sorted(path.stem for path in CORPUS.glob("train_*.txt")))


def gate() -> list[Example]:
    """Read the texts that judge the model, those without a cue included. Nothing trains on them."""
    return read("gate", "gate_nocue")


def validation() -> list[Example]:
    """Read the texts that choose a temperature and a threshold, those without a cue included."""
    return read("validation", "validation_nocue")


def _lines(path: Path) -> Iterable[str]:
    return (line for line in path.read_text("utf-8").splitlines() if line.strip())


def _yes_no(letter: str) -> tuple[float, ...]:
    return _YES[letter], 1 - _YES[letter]


def _share(letters: str, options: Mapping[str, str]) -> tuple[float, ...]:
    if letters == "*":
        return (1 / len(options),) * len(options)
    if set(letters) - options.keys():
        raise ValueError(f"{letters!r} are not among {''.join(options)}")
    return tuple(letters.count(letter) / len(letters) for letter in options)
