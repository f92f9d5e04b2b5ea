"""The picture of the comparison: latency against load, and processor time for each decision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.side_by_side.cells import Outcome

OURS, THEIRS = "#1a73e8", "#9aa0a6"


def draw(outcomes: Sequence[Outcome], file: Path) -> None:
    """Write an SVG: above, p50 and p99 against clients; below, processor time; for one and four reads."""
    mpl.use("Agg")
    from matplotlib import pyplot

    mpl.rcParams["svg.hashsalt"] = "side by side"  # the same picture of the same figures
    figure, places = pyplot.subplots(2, 2, figsize=(9, 6.5), layout="constrained")
    for column, reads in enumerate((1, 4)):
        chosen = [each for each in outcomes if (each.cell.tokens, each.cell.reads) == (200, reads)]
        _latency(places[0][column], [each for each in chosen if each.cell.delay_ms == 10], reads)
        _processor(places[1][column], [each for each in chosen if each.cell.delay_ms == 0], reads)
    places[0][0].legend(fontsize="small")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def _latency(place: Any, chosen: Sequence[Outcome], reads: int) -> None:
    clients = [each.cell.clients for each in chosen]
    for name, colour, figures in (
        ("structured-server", OURS, [each.ours for each in chosen]),
        ("vLLM's example", THEIRS, [each.example for each in chosen]),
    ):
        place.plot(clients, [each.p50 for each in figures], "o-", color=colour, label=f"{name}, p50")
        place.plot(clients, [each.p99 for each in figures], "o:", color=colour, label=f"{name}, p99")
    place.set(title=f"{reads} read{'s' * (reads > 1)}, engine 10 ms", xlabel="clients", ylabel="ms")
    place.set_xscale("log", base=2)
    place.set_yscale("log")
    place.set_xticks(clients, [str(each) for each in clients])
    place.grid(alpha=0.3)


def _processor(place: Any, chosen: Sequence[Outcome], reads: int) -> None:
    spots = range(len(chosen))
    for shift, colour, values in (
        (-0.2, OURS, [each.ours.cpu_us for each in chosen]),
        (0.2, THEIRS, [each.example.cpu_us for each in chosen]),
    ):
        bars = place.bar([spot + shift for spot in spots], values, 0.38, color=colour)
        place.bar_label(bars, [f"{value:.0f}" for value in values], fontsize="small")
    place.set(
        title=f"processor time, {reads} read{'s' * (reads > 1)}", xlabel="clients", ylabel="µs a decision"
    )
    place.set_xticks(spots, [str(each.cell.clients) for each in chosen])
