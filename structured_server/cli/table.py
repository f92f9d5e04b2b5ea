"""Answers as a table for people: each option's probability as a bar."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_BAR = 20
_NARROW_BAR = 4
_NARROW = 72  # columns, below which noise is told in a line of its own


def print_answers(answer: dict[str, Any], console: Console | None = None) -> None:
    """Print a response of `/decide`: a row for each option, the answer's name in front."""
    console = console or Console(highlight=False)
    narrow = console.width < _NARROW
    bar = _bar(answer["answers"], console.width, narrow)
    table = Table(box=None, pad_edge=False)
    for heading in ("question", "answer", "option", "", "p", *(() if narrow else ("noise",))):
        fixed = heading in ("", "p", "noise")
        table.add_column(
            heading, justify="right" if heading == "p" else "left", no_wrap=fixed, overflow="fold"
        )
    noises = []
    for name, each in answer["answers"].items():
        if each["status"] == "skipped":
            table.add_row(Text(name), Text("(skipped)"), Text(_why(each["reasons"][0])), "", "")
            continue
        noises += [f"{name} {noise}"] if (noise := _noise(each["noise"])) else []
        options = list(each["probabilities"].items())
        if each["type"] == "choice":
            options.sort(key=lambda pair: -pair[1])
        for row, (option, probability) in enumerate(options):
            first = row == 0
            table.add_row(
                Text(name if first else ""),
                Text(_headline(each) if first else ""),
                Text(_option(each, option)),
                "█" * round(probability * bar) or "▏",
                f"{probability:.3f}",
                *(() if narrow else (noise if first else "",)),
            )
    console.print(table)
    if narrow and noises:
        console.print(", ".join(noises), style="dim", markup=False)
    reading = answer["reading"]
    extended = f", more draws asked for by {', '.join(reading['extended_by'])}" if reading["extended"] else ""
    total = answer["timings_ms"]["total"]
    console.print(f"{total:.0f} ms, {reading['reads']} reads{extended}", style="dim", markup=False)
    for warning in answer["warnings"]:
        where = f"{warning['question']}: " if "question" in warning else ""
        said = f"{where}{warning['message']}"
        console.print(said, style="yellow", markup=False, soft_wrap=not console.is_terminal)


def answer_word(answer: dict[str, Any]) -> str:
    """Return a decided answer as the one word that it comes to."""
    if answer["type"] == "noul":
        return "yes" if answer["answer"] else "no"
    if answer["type"] == "score":
        return str(answer["legend"][str(answer["answer"])])
    return str(answer["answer"])


def _bar(answers: dict[str, Any], width: int, narrow: bool) -> int:
    """Return how long the bar of certainty is: what the other columns leave, within bounds."""
    read = [each for each in answers.values() if each["status"] != "skipped"]
    widest = [
        max(map(len, texts), default=0)
        for texts in (
            answers,
            map(_headline, read),
            (_option(each, key) for each in read for key in each["probabilities"]),
            ("0.000",),
            () if narrow else ("±0.000 over 32",),
        )
    ]
    others = sum(widest) + 2 * len(widest)  # columns stand two apart
    return max(_NARROW_BAR, min(_BAR, width - others))


def _headline(answer: dict[str, Any]) -> str:
    if answer["status"] != "decided":
        return f"({answer['status']})"
    word = answer_word(answer)
    return f"{word} ({answer['score']:.2f})" if answer["type"] == "score" else word


def _why(reason: dict[str, Any]) -> str:
    return f"asked only where {reason['question']} is {' or '.join(reason['limit'])}"


def _option(answer: dict[str, Any], key: str) -> str:
    if answer["type"] == "noul":
        return {"true": "yes", "false": "no"}[key]
    return str(answer["legend"][key]) if answer["type"] == "score" else key


def _noise(noise: dict[str, Any]) -> str:
    return "" if noise["standard_error"] is None else f"±{noise['standard_error']:.3f} over {noise['draws']}"
