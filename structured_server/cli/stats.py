"""What `--stats` tells, on standard error."""

from __future__ import annotations

from typing import Any

import click


def tell_decision(answer: dict[str, Any]) -> None:
    """Tell what a decision took."""
    times, reading, usage = answer["timings_ms"], answer["reading"], answer["usage"]
    cached = usage["cached_input_tokens"]
    click.echo(
        f"time: {times['total']:.1f} ms, of which queue {times['queue']:.1f}, engine {times['engine']:.1f}\n"
        f"reads: {reading['reads']}, canvas {reading['canvas_width']} tokens"
        f"{', more draws for ' + ', '.join(reading['extended_by']) if reading['extended'] else ''}\n"
        f"tokens: prompt {usage['input_tokens']}, over all reads {usage['engine_input_tokens']}"
        f"{'' if cached is None else f', of which cached {cached}'}\n"
        f"model: {answer['model']}, fingerprint {answer['provenance']['fingerprint']}",
        err=True,
    )


def tell_generation(seconds: float, first_s: float | None, usage: dict[str, Any] | None) -> None:
    """Tell what writing took; `first_s` is when the first piece came, None where it all came at once."""
    first = "" if first_s is None else f", first piece after {first_s:.2f} s"
    click.echo(f"time: {seconds:.2f} s{first}", err=True)
    if usage:
        prompt, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
        rate = f", {written / seconds:.0f} a second" if written and seconds else ""
        click.echo(f"tokens: prompt {prompt}, written {written}{rate}", err=True)
