"""Recorded decisions asked again, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from structured_server.cli.asking import ask
from structured_server.cli.exits import BAD_INPUT, Refused
from structured_server.cli.options import Target
from structured_server.decision_log.comparison import Comparison, compare
from structured_server.wire.fields import MAX_DEADLINE_MS

SHOWN = 20
"""Decisions that are far apart, of which the summary shows so many."""

STATE = "state"


@dataclass(slots=True)
class Replayed:
    """What became of the records: compared, not sayable to `/decide` and why, or refused by the server."""

    compared: list[Comparison] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def ask_again(records: Iterable[dict[str, Any]], server: Target, parallel: int) -> Replayed:
    """Ask each record's questions about its state again, with the same seed.

    Raises:
        Refused: the server cannot be reached, lets nobody in with this token, or fails.
    """
    replayed = Replayed()
    waiting = iter(records)

    def one(record: dict[str, Any]) -> Comparison | str:
        try:
            answer = ask(server, _body(record, server.timeout))
        except Refused as error:
            if error.exit_code != BAD_INPUT:
                raise
            return error.message
        if answer["provenance"]["question_set"] != record["decision"]["provenance"]["question_set"]:
            return "the server understood other questions."
        return compare(record["decision"], answer)

    with ThreadPoolExecutor(parallel) as pool:
        while sayable := list(islice(_sayable(waiting, replayed.left_out), 16 * parallel)):
            for result in pool.map(one, sayable):
                if isinstance(result, str):
                    replayed.refused[result] += 1
                else:
                    replayed.compared.append(result)
    return replayed


def summary_of(replayed: Replayed, tolerance: float) -> dict[str, Any]:
    """Return counts and distances, and which decisions are another answer or further apart than allowed."""
    compared = replayed.compared
    different = [each for each in compared if each.changed or each.apart > tolerance]
    return {
        "compared": len(compared),
        "same_fingerprint": sum(each.same_fingerprint for each in compared),
        "different": len(different),
        "changed": sum(bool(each.changed) for each in compared),
        "largest_difference": max((each.apart for each in compared), default=None),
        "mean_difference": fmean(each.apart for each in compared) if compared else None,
        "tolerance": tolerance,
        "left_out": dict(replayed.left_out),
        "refused": dict(replayed.refused),
        "furthest": [
            {
                "id": each.identifier,
                "difference": each.apart,
                "changed": {it.question: [it.before, it.after] for it in each.changed},
            }
            for each in sorted(different, key=lambda each: (not each.changed, -each.apart))[:SHOWN]
        ],
    }


def print_summary(summary: dict[str, Any], console: Console | None = None) -> None:
    """Print it for people."""
    console = console or Console(highlight=False)

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    for name, count in summary["left_out"].items():
        why = "were recorded without their state" if name == STATE else f"had {name}, which /decide has not"
        say(f"{count} left out: they {why}.")
    for message, count in summary["refused"].items():
        say(f"{count} refused: {message}")
    if not summary["compared"]:
        return
    say(
        f"{summary['compared']} asked again, {summary['same_fingerprint']} by just what had answered before "
        f"(same fingerprint): {summary['changed']} with another answer, {summary['different']} in all with "
        f"that or a probability more than {summary['tolerance']:g} away."
    )
    say(f"Largest difference {summary['largest_difference']:.4f}, mean {summary['mean_difference']:.4f}.")
    if summary["furthest"]:
        table = Table(box=None, pad_edge=False)
        for heading in ("decision", "difference", "other answers"):
            table.add_column(heading)
        for each in summary["furthest"]:
            changed = ", ".join(f"{name}: {was} → {now}" for name, (was, now) in each["changed"].items())
            table.add_row(Text(each["id"]), f"{each['difference']:.4f}", Text(changed))
        console.print(table)


def _sayable(records: Iterator[dict[str, Any]], left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the records that can be asked again, and count what the others lack."""
    for record in records:
        missing = record["unsaid"] or ([] if STATE in record else [STATE])
        if missing:
            left_out[missing[0]] += 1
        else:
            yield record


def _body(record: dict[str, Any], timeout: float) -> dict[str, Any]:
    return {
        "state": record[STATE],
        "questions": record["questions"],
        "read": record["read"],
        "deadline_ms": min(MAX_DEADLINE_MS, max(1, round(1000 * timeout))),
    }
