"""A receipt of the incident benchmark, laid out to be read: tables for rich, and a few closing lines.

Pure: what is shown is a function of the receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.table import Table

from benchmarks.incident_figures import READS


def tables(receipt: Mapping[str, Any]) -> Iterator[Table]:
    """Lay a receipt out as tables: latency, answers and, where it was measured, generation."""
    rows = receipt["incidents"]
    yield _table(
        "Latency, milliseconds: median / p95",
        ("incident", "first call", "1 read", "4 reads", "auto", "auto extended by"),
        (
            (
                row["id"],
                _first_call(row["first_call"]),
                *(_spent(row["latency"][kind]) for kind in READS),
                ", ".join(row["extended_by"]) or "-",
            )
            for row in rows
        ),
    )
    yield _table(
        "Automatic decision: answer, probability of the likeliest word, entropy of the first read in nats",
        ("incident", *rows[0]["answers"], "as expected"),
        ((row["id"], *map(_said, row["answers"].values()), _judged(row)) for row in rows),
    )
    if receipt["summary"].get("generative"):
        yield _table(
            "Plain generation of the same JSON, milliseconds: median / p95",
            ("incident", "latency", "replies", "answer", "as expected"),
            (
                (
                    row["id"],
                    _spent(row["generative"]),
                    _counts(row["generative"]["outcomes"]),
                    " ".join((row["generative"]["answer"] or {"": "-"}).values()),
                    _judged(row, row["generative"]["right"]),
                )
                for row in rows
            ),
        )


def conclusions(summary: Mapping[str, Any]) -> Iterator[str]:
    """Say in a line each what the summary of a receipt holds."""
    for name in ("clear", "ambiguous"):
        group = summary[name]
        one, four, auto = (group[kind]["median_ms"] for kind in READS)
        yield (
            f"{name}: medians {one:.0f} ms for one read, {four:.0f} ms for four, {auto:.0f} ms for auto; "
            f"{group['extended_incidents']} of {group['incidents']} extended; {_judged(group)} as expected"
        )
    yield f"the same request moved a probability by at most {summary['drift']:.2g} between rounds"
    if generative := summary.get("generative"):
        replies = _counts(generative["outcomes"])
        if generative["median_ms"] is None:
            yield f"generation: no reply to time; {replies}"
        else:
            ratio = generative["ratio"]
            yield (
                f"generation: {generative['median_ms']:.0f} ms (median), "
                f"{ratio['first']:.1f} times one read, {ratio['auto']:.1f} times auto; {replies}"
            )


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table


def _first_call(call: Mapping[str, Any]) -> str:
    cached = call["cached_input_tokens"]
    known = "" if cached is None else f" ({cached} of {call['engine_input_tokens']} tokens cached)"
    return f"{call['ms']:.0f}{known}"


def _spent(figures: Mapping[str, Any]) -> str:
    return "-" if figures["median_ms"] is None else f"{figures['median_ms']:.0f} / {figures['p95_ms']:.0f}"


def _said(answer: Mapping[str, Any]) -> str:
    top = max(answer["probabilities"].values())
    return f"{answer['answer'] or 'abstained'} {top:.2f} (H {answer['first_read_entropy']:.2f})"


def _judged(row: Mapping[str, Any], right: int | None = None) -> str:
    return f"{row['right'] if right is None else right} of {row['judged']}"


def _counts(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
