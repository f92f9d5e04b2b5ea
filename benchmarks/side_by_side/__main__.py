"""Measure this server beside vLLM's example server: processor time for each decision, latency, throughput.

    python -m benchmarks.side_by_side --out benchmarks/receipts/side_by_side.json --picture docs/pictures

Both stand before the same fake engine, which costs next to nothing and answers after a set delay, and get the
same requests in turn: three questions about texts that are all different.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.reliability.verdicts import Check, Measured, at_least, at_most, conclude, machine, none_of
from benchmarks.side_by_side.cells import Cell, Outcome, matrix, measure
from benchmarks.side_by_side.full_house import full_house
from benchmarks.side_by_side.servers import ring
from benchmarks.side_by_side.tokenising import tokenising_us
from tests.gemma import diffusion_gemma_tokenizer

QUICK = [Cell(200, reads, 16, 0) for reads in (1, 4)]


def checks_of(outcomes: Sequence[Outcome]) -> list[Check]:
    """Hold what was measured against what is wanted, as far as it was measured."""
    checks = [none_of("answers of ours that were errors", sum(each.ours.errors for each in outcomes))]
    for each in outcomes:
        cell = each.cell
        if (cell.tokens, cell.clients, cell.delay_ms) == (200, 16, 0):
            name = f"the example's processor time over ours, reads {cell.reads}"
            checks.append(at_least(name, each.ratio, 4 if cell.reads == 1 else 5))
        if (cell.tokens, cell.clients, cell.reads, cell.delay_ms) == (200, 1, 1, 0):
            checks.append(at_most("added to a read at 1 client, p50", each.added[0], 0.8, " ms"))
    short = [each for each in outcomes if each.cell.tokens == 200]
    # The example leaves most of many clients waiting for a connection, which its p50 does not show.
    for name in ("mean", "p50"):
        higher = sum(getattr(each.ours, name) > getattr(each.example, name) for each in short)
        checks.append(none_of(f"cells of 200 tokens in which our {name} is the higher one", higher))
    return checks


def show(outcomes: Sequence[Outcome], tokenising: dict[int, dict[str, float]]) -> None:
    """Print a row for each cell, and the cost of tokenising apart."""
    table = Table(title="ours | vLLM's example; processor time is that of a decision", title_justify="left")
    for name in (
        "tokens",
        "reads",
        "clients",
        "delay ms",
        "cpu µs",
        "times",
        "added p50 ms",
        "mean ms",
        "a second",
    ):
        table.add_column(name, justify="right")
    for each in outcomes:
        cell, ours, theirs = each.cell, each.ours, each.example
        table.add_row(
            *(str(value) for value in (cell.tokens, cell.reads, cell.clients, cell.delay_ms)),
            f"{ours.cpu_us:.0f} | {theirs.cpu_us:.0f}",
            f"{each.ratio:.1f}",
            f"{each.added[0]:.2f} | {each.added[1]:.2f}",
            f"{ours.mean:.1f} | {theirs.mean:.1f}",
            f"{ours.per_second:.0f} | {theirs.per_second:.0f}",
        )
    console = Console(width=110)
    console.print(table)
    for tokens, costs in tokenising.items():
        said = ", ".join(f"{name} {value:.0f} µs" for name, value in costs.items())
        console.print(f"tokenising {tokens} tokens: {said}", highlight=False)


async def _all(cells: Sequence[Cell], rounds: int, seconds: float, seed: int) -> list[Outcome]:
    outcomes = []
    with tempfile.TemporaryDirectory() as folder, ring(Path(folder)) as both:
        for cell in cells:
            outcomes.append(await measure(both, cell, rounds=rounds, seconds=seconds, seed=seed))
            click.echo(f"{cell}: {outcomes[-1].ratio:.2f}", err=True)
    return outcomes


@click.command(epilog="\b\nExamples:\n  python -m benchmarks.side_by_side --quick\n  make bench")
@click.option("--quick", is_flag=True, help="Only the two cells that limits are set for.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seconds", type=float, default=1.5, show_default=True, help="Of each round of each server.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Write a receipt.")
@click.option("--picture", type=click.Path(path_type=Path), help="Write the picture, an SVG.")
def main(
    *, quick: bool, rounds: int, seconds: float, seed: int, out: Path | None, picture: Path | None
) -> None:
    """Compare the two servers. Exit code 1 if a limit is broken."""
    begun, at_first = time.monotonic(), machine()
    tokenizer = diffusion_gemma_tokenizer()
    cells = QUICK if quick else matrix()
    outcomes = asyncio.run(_all(cells, rounds, seconds, seed))
    checks = checks_of(outcomes)
    figures: dict[str, Any] = {
        "cells": [asdict(each) | {"ratio": each.ratio, "added": each.added} for each in outcomes]
    }
    tokenising = {} if quick else {tokens: tokenising_us(tokenizer, tokens) for tokens in (200, 1500)}
    if not quick:
        house = asyncio.run(full_house())
        checks += house.checks
        figures |= {"full_house": asdict(house), "tokenising_us": tokenising}
    show(outcomes, tokenising)
    if picture is not None:
        from benchmarks.side_by_side.picture import draw

        draw(outcomes, picture)
    settings = {"rounds": rounds, "seconds": seconds, "seed": seed, "example": "vLLM 0.32.0"}
    conclude(Measured("Side by side", settings, checks, figures), begun, at_first, out)


if __name__ == "__main__":
    main()
