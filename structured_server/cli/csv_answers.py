"""Answers as comma-separated values: a line for each question."""

from __future__ import annotations

import csv
import io
from typing import Any

import click

from structured_server.cli.table import answer_word

COLUMNS = ("question", "type", "status", "answer", "p", "entropy", "standard_error")
"""`p` is the probability of yes, or of the likeliest option; `entropy` is in nats."""


def print_csv(answer: dict[str, Any]) -> None:
    """Print a response of `/decide`; what a question does not have is empty. Numbers are not rounded."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    for name, each in answer["answers"].items():
        decided = each["status"] == "decided"
        p = each.get("noul") if each["type"] == "noul" else each.get("top_probability")
        noise = each.get("noise") or {}
        word = answer_word(each) if decided else ""
        lines.writerow(
            (name, each["type"], each["status"], word, p, each.get("entropy"), noise.get("standard_error"))
        )
    click.echo(out.getvalue(), nl=False)
