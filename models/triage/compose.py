"""Composes training texts from an inventory of phrases, and varies written ones; labels move along."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from texts import TEAMS, Example

Random = random.Random
Target = tuple[float, ...]

INVENTORY: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("inventory.yaml").read_text("utf-8"))
# How urgent a severity is when nothing else is said.
_URGENT_AT = (0.03, 0.08, 0.86, 0.97)


def compose(choose: Random) -> Example:
    """Make a text of a symptom and, often, impact, place, urgency and courtesies."""
    letter = choose.choice(list(TEAMS))
    severity = choose.randrange(4)
    symptom = _fill(choose.choice(INVENTORY["symptoms"][letter][str(severity)]), choose, letter)
    team, level = _one(list(TEAMS).index(letter), 5), _one(severity, 4)
    parts = [symptom]
    if choose.random() < 0.15:
        parts[0] = f"{_fill(choose.choice(INVENTORY['hosts']), choose, letter)}: {symptom}"
    if choose.random() < 0.06:
        other = choose.choice([key for key in TEAMS if key != letter])
        parts.append(_fill(choose.choice(INVENTORY["symptoms"][other][str(severity)]), choose, other))
        team = _mix(team, _one(list(TEAMS).index(other), 5), 0.5)
    if choose.random() < 0.25:
        parts[0] += f" {_fill(choose.choice(INVENTORY['times']), choose, letter)}"
    if choose.random() < 0.6:
        told = severity if choose.random() < 0.75 else min(3, max(0, severity + choose.choice((-1, 1))))
        parts.append(_fill(choose.choice(INVENTORY["impacts"][str(told)]), choose, letter))
        level = _mix(_one(told, 4), level, 0.8)
    urgent = sum(p * q for p, q in zip(level, _URGENT_AT, strict=True))
    if severity >= 2 and choose.random() < 0.18:
        parts.append(_fill(choose.choice(INVENTORY["mitigations"]), choose, letter))
        urgent = 0.06
    elif choose.random() < 0.35:
        pressing = (urgent > 0.5) != (choose.random() < 0.2)
        parts.append(_fill(choose.choice(INVENTORY["urgency" if pressing else "patience"]), choose, letter))
        urgent = (
            max(urgent, 0.9 if severity else 0.6) if pressing else min(urgent, 0.1 if severity < 3 else 0.45)
        )
    if len(parts) > 1 and choose.random() < 0.3:
        choose.shuffle(parts)
    text = choose.choice((". ", ". ", ", ", " - ", "\n")).join(parts)
    return vary(Example(text, {"team": team, "severity": level, "urgent": (urgent, 1 - urgent)}), choose)


def vary(example: Example, choose: Random) -> Example:
    """Return the text as somebody else might have typed it: courtesies, case, slips, other numbers."""
    text = example.text
    if choose.random() < 0.4:
        text = re.sub(r"(?<![\d.])[1-9](?=\d)", lambda _: str(choose.randint(1, 9)), text)
    if choose.random() < 0.18:
        text = f"{_fill(choose.choice(INVENTORY['openings']), choose, 'c')} {text}"
    if choose.random() < 0.12:
        text += choose.choice((" ", "\n")) + _fill(choose.choice(INVENTORY["closings"]), choose, "c")
    kind = choose.random()
    if kind < 0.12:
        text = text.lower()
    elif kind < 0.14:
        text = text.upper()
    if choose.random() < 0.12:
        text = _mistype(text, choose)
    return replace(example, text=text)


def soften(example: Example, choose: Random) -> Example:
    """Drop a sentence of a longer text, and move its labels a little towards not knowing."""
    sentences = re.split(r"(?<=[.!?]) ", example.text)
    if len(sentences) < 3:
        return example
    del sentences[choose.randrange(len(sentences))]
    targets = {
        name: _mix(target, (1 / len(target),) * len(target), 0.88) for name, target in example.targets.items()
    }
    return Example(" ".join(sentences), targets)


def join(first: Example, second: Example, choose: Random) -> Example:
    """Put two texts together: both teams share what comes of it, and the worse of the two counts."""
    if not (first.has_cue and second.has_cue) or len(first.text) + len(second.text) > 600:
        return first
    text = choose.choice((" ", "\n", " Also: ", " And then: ", " Meanwhile: ")).join(
        (first.text, second.text)
    )
    worse = max(first, second, key=lambda each: _mean(each.targets["severity"]))
    targets = dict(worse.targets)
    targets["team"] = _mix(first.targets["team"], second.targets["team"], 0.5)
    yes = max(first.targets["urgent"][0], second.targets["urgent"][0])
    targets["urgent"] = (yes, 1 - yes)
    return Example(text, targets)


def _mean(target: Target) -> float:
    return sum(index * share for index, share in enumerate(target))


def _fill(phrase: str, choose: Random, letter: str) -> str:
    def value(match: re.Match[str]) -> str:
        match match[1]:
            case "n":
                return str(choose.randint(11, 98))
            case "k":
                return str(choose.randint(2, 9))
            case "p":
                return str(choose.choice((12, 15, 18, 20, 25, 30, 35, 40, 45)))
            case "p2":
                return str(choose.randint(81, 97))
            case "tm":
                return f"{choose.randrange(24):02}:{choose.randrange(60):02}"
            case "nm":
                return str(choose.choice(INVENTORY["names"]))
            case "pl":
                return str(choose.choice(INVENTORY["places"]))
            case "r":
                return str(choose.choice(INVENTORY["resources"][letter]))
        raise KeyError(match[1])

    return re.sub(r"\{(\w+)\}", value, phrase)


def _mistype(text: str, choose: Random) -> str:
    letters = list(text)
    for _ in range(choose.randint(1, 3)):
        at = choose.randrange(max(1, len(letters) - 1))
        if letters[at : at + 1] and letters[at].isalpha():
            kind = choose.random()
            if kind < 0.5 and at + 1 < len(letters):
                letters[at], letters[at + 1] = letters[at + 1], letters[at]
            elif kind < 0.8:
                del letters[at]
            else:
                letters.insert(at, letters[at])
    return "".join(letters)


def _one(index: int, count: int) -> Target:
    return tuple(float(i == index) for i in range(count))


def _mix(first: Sequence[float], second: Sequence[float], share: float) -> Target:
    return tuple(share * a + (1 - share) * b for a, b in zip(first, second, strict=True))
