"""A lint report for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_LABELS = 12
"""Labels of a question that are shown; the rest are counted."""


def print_report(report: dict[str, Any], console: Console | None = None) -> None:
    """Print a response of `/decide/lint`: each canvas with its questions, the cost, then what was found."""
    console = console or Console(highlight=False)
    for number, group in enumerate(report["groups"], 1):
        _print_group(group, f"canvas {number} of {len(report['groups'])}", report["engine"], console)
    _print_cost(report, console)
    for warning in report["warnings"]:
        where = f"{warning['question']}: " if "question" in warning else ""
        _say(console, f"{where}{warning['message']} [{warning['code']}]", "yellow")
    if not report["warnings"]:
        _say(console, "No warnings.", "green")
    if report["against"] is not None:
        _print_changes(report, console)


def _print_group(group: dict[str, Any], title: str, engine: dict[str, Any], console: Console) -> None:
    stage = f", stage {group['stage'] + 1}" if group["stage"] else ""
    _say(console, f"{title}{stage}", "bold")
    if group["opening"] is not None:
        _say(console, f"goes on from {group['opening']}", "dim")
    _say(console, group["canvas"])
    cap = "no cap" if engine["max_label_ids"] is None else f"cap {engine['max_label_ids']}"
    reads = f"{group['reads_per_draw']} read{'s' if group['reads_per_draw'] > 1 else ''} a draw"
    _say(
        console,
        f"{group['width'] - group['padding']} of {group['width']} tokens, {group['label_ids']} label ids "
        f"({cap}), {reads}, {group['prompt_tokens']} prompt tokens",
        "dim",
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("question", "key", "type", "ids", "labels"):
        table.add_column(
            heading, justify="right" if heading == "ids" else "left", no_wrap=heading != "labels"
        )
    for each in group["questions"]:
        table.add_row(
            Text(each["id"]), Text(each["key"]), each["type"], str(each["label_ids"]), Text(_labels(each))
        )
    console.print(table)
    console.print()


def _labels(question: dict[str, Any]) -> str:
    shown = [
        f"{label} = {option}" if option in question["aliases"] else label
        for option, label in list(question["labels"].items())[:_LABELS]
    ]
    more = len(question["labels"]) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _print_cost(report: dict[str, Any], console: Console) -> None:
    reads, tokens = report["reads"], report["tokens"]
    most = "up to " if reads["samples"] == "auto" else ""
    _say(
        console,
        f"reads: {reads['one_draw']} for one draw, auto at most {reads['auto_at_most']}; with samples "
        f"{reads['samples']}: {most}{reads['as_asked']}, {reads['prompt_tokens_as_asked']} prompt tokens",
    )
    limit = "a context that is not known" if tokens["limit"] is None else f"a context of {tokens['limit']}"
    room = "" if tokens["room"] is None else f", room for a state of {tokens['room']}"
    state = "" if tokens["state"] is None else f"; the state has {tokens['state']}"
    _say(console, f"tokens: {tokens['around_state']} around the state in {limit}{room}{state}")


def _print_changes(report: dict[str, Any], console: Console) -> None:
    against = report["against"]
    console.print()
    names = f"{against['fingerprint']} -> {report['provenance']['fingerprint']}"
    if not against["changes"]:
        _say(console, f"Nothing moves numbers ({names}).", "green")
        return
    _say(console, f"Changes ({names}):", "bold")
    for change in against["changes"]:
        where = f"{change['question']}: " if "question" in change else ""
        _say(console, f"- {where}{change['message']}{_moves(change)}")


def _moves(change: dict[str, Any]) -> str:
    moves = change["moves"]
    if not moves or moves == [change.get("question")]:
        return ""
    shown = ", ".join(moves[:_LABELS])
    more = len(moves) - _LABELS
    return f" Moves {shown}{f' and {more} more' if more > 0 else ''}."


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, soft_wrap=True)
