"""`structured-server batch`: the same questions about every row of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from structured_server.cli.exits import AUTH, BAD_INPUT, INTERRUPTED, SERVER, UNDECIDED, Refused
from structured_server.cli.options import server_options
from structured_server.cli.variables import template_option, variable_options

if TYPE_CHECKING:
    from structured_server.bulk.work import Asking, Reporting, Work

_EPILOG = """\b
Examples:
  structured-server batch tickets.csv -q questions.yaml -o labelled.csv
  structured-server batch alerts.jsonl -q questions.yaml -o labelled.jsonl --state-column alert
  structured-server batch tickets.csv -t support_triage -o labelled.csv
  structured-server batch tickets.csv -q questions.yaml --estimate --price-per-hour 0.75
  structured-server batch tickets.csv -q questions.yaml -o labelled.csv --gold team=owner

\b
The same command goes on where it was stopped. docs/bulk.md has the output's columns.

\b
Exit codes: 0 done, 3 done with undecided or error rows, 4 bad input, 5 server, 6 authentication,
130 interrupted.
"""
_FORMAT = click.Choice(["csv", "tsv", "jsonl"])


@click.command(epilog=_EPILOG)
@click.argument("source", metavar="INPUT", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where rows are written: CSV, TSV or JSON lines."
)
@click.option(
    "-q",
    "--questions",
    "questions_file",
    type=click.Path(path_type=Path),
    help="Questions, JSON or YAML.",
)
@template_option
@variable_options
@click.option("--input-format", type=_FORMAT, help="The input's format; by its suffix if not given.")
@click.option("--output-format", type=_FORMAT, help="The output's format; by its suffix if not given.")
@click.option(
    "--state-column",
    help="What is asked about. Default: the only column, else `state` or `text`, else the whole row.",
)
@click.option("--id-column", help="A column that names rows: it is never part of the state.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many rows, from the first.")
@click.option("--prefix", default="", help="Stands before the names of the columns that are added.")
@click.option(
    "--gold",
    multiple=True,
    metavar="[QUESTION=]COLUMN",
    help="A column of right answers: the summary has accuracy. It is never part of the state.",
)
@click.option("--samples", help='Draws to average, 1 to 32, or "auto".')
@server_options
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    help="Requests at once, at most.",
)
@click.option(
    "--retry-for",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Seconds without any answer before the run stops.",
)
@click.option("--estimate", is_flag=True, help="Ask 50 rows, write nothing, and say what all would take.")
@click.option("--price-per-hour", type=click.FloatRange(min=0), help="For --estimate: the server's price.")
@click.option("--retry-errors", is_flag=True, help="Ask the rows again that are errors in the output.")
@click.option(
    "--allow-mixed", is_flag=True, help="Go on although input, questions, options or model changed."
)
@click.option("--allow-demo-model", is_flag=True, help="Keep answers of the demo model that mean nothing.")
@click.option("--overwrite", is_flag=True, help="Start anew; what is in the output is lost.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option(
    "--summary",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print what it came to.",
)
def batch(summary: Literal["table", "json"], **given: Any) -> None:
    """Ask the same questions about every row of INPUT: CSV, TSV or JSON lines.

    Rows are written in the input's order, with all of their columns and those of the answers.
    """
    from structured_server.cli.batch_preparing import prepared
    from structured_server.cli.batch_summary import print_estimate, print_summary

    with _exits(given["output"]):
        work, asking, reporting = prepared(**given)
        if given["estimate"]:
            found = _estimate(work, asking, reporting, given["price_per_hour"])
            _print(found, summary, print_estimate)
            return
        asked = work.label(asking, reporting)
    if not asked:
        reporting.say("Nothing is left to do.")
    _print(work.tally.summary(), summary, print_summary)
    counts = work.tally.counts
    if counts["error"] and not given["quiet"]:
        click.echo("Ask the rows with errors again: the same command with --retry-errors.", err=True)
    sys.exit(0 if counts["decided"] == counts["rows"] else UNDECIDED)


def _estimate(work: Work, asking: Asking, reporting: Reporting, price: float | None) -> dict[str, Any]:
    from structured_server.bulk.estimate import estimate

    return estimate(
        work.source.rows(),
        work.total,
        work.job.render,
        asking,
        reporting,
        price_per_hour=price,
        allow_demo_model=work.job.allow_demo_model,
    )


@contextmanager
def _exits(output: Path | None) -> Iterator[None]:
    """Turn what ends a run early into a message and an exit code."""
    from structured_server.bulk.errors import BulkError, KeyRefused, OtherNumbers, ServerFailed

    def again() -> str:
        if output is None or not output.exists():
            return ""
        return f" {output} keeps what it has: run the same command again to go on there."

    try:
        yield
    except ServerFailed as error:
        raise Refused(f"{error}{again()}", SERVER) from None
    except OtherNumbers as error:
        raise Refused(str(error), SERVER) from None
    except KeyRefused as error:
        raise Refused(f"{error}{again()}", AUTH) from None
    except BulkError as error:
        raise Refused(str(error), BAD_INPUT) from None
    except KeyboardInterrupt:
        raise Refused(f"interrupted.{again()}", INTERRUPTED) from None


def _print(found: dict[str, Any], how: str, as_table: Any) -> None:
    if how == "json":
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        as_table(found)
