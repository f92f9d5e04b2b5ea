"""What a bulk run came to, or would take, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from structured_server.bulk.progress import duration

_SHOWN = 8  # answers of a question; the rest is added up


def print_summary(summary: dict[str, Any], console: Console | None = None) -> None:
    """Print counts, the answers of each question, and how they compare with right ones."""
    console = console or Console(highlight=False)
    console.print(
        f"{summary['rows']} rows: {summary['decided']} decided, {summary['undecided']} undecided, "
        f"{summary['error']} with an error"
    )
    for code, count in summary["errors"].items():
        console.print(f"  {code}: {count}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in ("question", "answers", "undecided", "mean entropy"):
        table.add_column(heading, justify="left" if heading in ("question", "answers") else "right")
    for name, each in summary["questions"].items():
        table.add_row(
            Text(name),
            Text(_mix(each["answers"])),
            _percent(each["undecided_share"]),
            "" if each["mean_entropy"] is None else f"{each['mean_entropy']:.3f}",
        )
    console.print(table)
    for name, each in summary["questions"].items():
        if each["gold"]:
            _print_gold(name, each["gold"], console)


def print_estimate(found: dict[str, Any], console: Console | None = None) -> None:
    """Print what labelling all rows would take."""
    console = console or Console(highlight=False)
    lines = [
        f"{found['rows']} rows would take about {duration(found['seconds'])}: "
        f"{found['rows_per_second']:.1f} rows/s over {found['asked']} rows.",
        f"Asked for more draws: {_percent(found['extended_share']) or 'not known'}. "
        f"Too long: {_percent(found['too_long_share'])}.",
    ]
    if found["cost"] is not None:
        lines.append(f"Cost at {found['price_per_hour']:g} an hour: {found['cost']:.4g}.")
    lines += [f"Errors: {count} × {code}." for code, count in found["errors"].items()]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _print_gold(name: str, gold: dict[str, Any], console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    if gold["n"]:
        low, high = gold["interval_95"]
        say(
            f"\n{name}: {gold['right']} of {gold['n']} right, accuracy {gold['accuracy']:.3f} "
            f"(95 % interval {low:.3f} to {high:.3f}); {gold['undecided']} undecided"
        )
    else:
        say(f"\n{name}: no row with both an answer and a right one")
    if gold["unknown"]:
        say(f"{gold['unknown']} rows have a right answer that is no option of {name}: left out.")
    if not gold["n"]:
        return
    bins = Table(box=None, pad_edge=False)
    for heading in ("p of the answer", "mean p", "accuracy", "n"):
        bins.add_column(heading, justify="right")
    for each in gold["reliability"]:
        span = f"{each['from']:.1f} to {each['to']:.1f}"
        bins.add_row(span, f"{each['mean_p']:.3f}", f"{each['accuracy']:.3f}", str(each["n"]))
    console.print(bins)
    coverage = Table(box=None, pad_edge=False)
    for heading in ("answers from p", "coverage", "wrong", "n"):
        coverage.add_column(heading, justify="right")
    for each in gold["coverage"]:
        risk = "" if each["risk"] is None else f"{each['risk']:.3f}"
        coverage.add_row(f"{each['min_p']:.2f}", _percent(each["coverage"]), risk, str(each["n"]))
    console.print(coverage)


def _mix(answers: dict[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in list(answers.items())[:_SHOWN]]
    rest = sum(list(answers.values())[_SHOWN:])
    return ", ".join([*shown, *([f"others {rest}"] if rest else [])])


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
