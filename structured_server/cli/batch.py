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
from structured_server.cli.options import Target, server_options
from structured_server.cli.request import read_questions
from structured_server.cli.template import template_errors
from structured_server.cli.variables import read_variables, template_option, variable_options

if TYPE_CHECKING:
    from structured_server.bulk.rows import Source, Survey
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
    from structured_server.cli.batch_summary import print_estimate, print_summary

    with _exits(given["output"]):
        work, asking, reporting = _prepared(**given)
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


def _prepared(
    *,
    source: Path,
    output: Path | None,
    questions_file: Path | None,
    template: str | None,
    variables: tuple[str, ...],
    data: Path | None,
    input_format: str | None,
    output_format: str | None,
    state_column: str | None,
    id_column: str | None,
    limit: int | None,
    prefix: str,
    gold: tuple[str, ...],
    samples: str | None,
    server: Target,
    concurrency: int,
    retry_for: float,
    estimate: bool,
    price_per_hour: float | None,
    retry_errors: bool,
    allow_mixed: bool,
    allow_demo_model: bool,
    overwrite: bool,
    quiet: bool,
) -> tuple[Work, Asking, Reporting]:
    """Put together what the options say.

    Raises:
        BulkError: they cannot be followed.
    """
    from structured_server.bulk.asker import HttpAsker
    from structured_server.bulk.bodies import StateBodies, require_column, state_bodies
    from structured_server.bulk.by_template import TemplateBodies
    from structured_server.bulk.files import Places
    from structured_server.bulk.flat import columns_of, refuse_collisions
    from structured_server.bulk.lines import Lines
    from structured_server.bulk.manifest import Manifest, digest_of
    from structured_server.bulk.rows import Source, format_of
    from structured_server.bulk.run import Job
    from structured_server.bulk.tally import Tally
    from structured_server.bulk.work import Asking, Reporting, Work
    from structured_server.templates import load

    if output is None and not estimate:
        raise click.UsageError("say where to write: -o FILE, or --estimate to write nothing.")
    if price_per_hour is not None and not estimate:
        raise click.UsageError("--price-per-hour is for --estimate.")
    if output is not None and output.exists() and source.exists() and output.samefile(source):
        raise click.UsageError("the output must be another file than the input.")
    if (questions_file is None) == (template is None):
        raise click.UsageError("say once what is asked: --questions FILE, or --template NAME_OR_FILE.")
    if template is not None and state_column is not None:
        raise click.UsageError("a template has its own state: leave --state-column out.")
    reporting = Reporting(sys.stderr, quiet)
    rows = Source(source, format_of(source, input_format, "--input-format"))
    written = "jsonl" if output is None else format_of(output, output_format, "--output-format")
    survey = rows.survey()
    given = read_variables(variables, data)
    asked = _asked(questions_file, template, rows, survey, given)

    def complete(body: dict[str, Any]) -> dict[str, Any]:
        return _common(body, samples, server.timeout)

    common = complete(asked)
    questions = common["questions"]
    if id_column is not None:
        require_column(survey, id_column, "--id-column")
    right = _gold(gold, list(questions))
    for column in right.values():
        require_column(survey, column, "--gold")
    apart = {*right.values(), *filter(None, [id_column])}
    settings = {name: value for name, value in common.items() if name not in ("questions", "deadline_ms")}
    bodies: StateBodies | TemplateBodies
    if template is not None:
        used = load(template)
        bodies = TemplateBodies(used, given, questions, complete)
        settings |= {"template": digest_of(used.source), "variables": given}
    else:
        bodies = state_bodies(common, survey, state_column, apart)
        settings |= {"state": list(bodies.columns), "state is a whole row": not bodies.single}
    added = columns_of(questions, prefix)
    refuse_collisions(survey.columns, added, prefix)
    reporting.say(f"The state is {bodies.told()}.")
    lines = Lines(written, survey.columns, added)
    settings |= {"input format": rows.format, "output format": written}
    manifest = Manifest(
        input={"name": source.name, "digest": survey.digest, "rows": survey.rows},
        questions=digest_of(questions),
        settings=settings,
        columns=added if written == "jsonl" else (*survey.columns, *added),
    )
    total = min(survey.rows, limit or survey.rows)
    job = Job(questions, prefix, bodies, lines, allow_mixed, allow_demo_model)
    places = Places(output or source)
    work = Work(rows, total, job, places, manifest, Tally(questions, prefix, right), overwrite, retry_errors)

    auth = server.auth()

    def asker() -> HttpAsker:
        return HttpAsker(server.url, token=server.plain_token, auth=auth, timeout=server.timeout)

    return work, Asking(asker, concurrency, retry_for), reporting


def _asked(
    questions_file: Path | None, template: str | None, rows: Source, survey: Survey, given: dict[str, Any]
) -> dict[str, Any]:
    """Return what is asked: the file's questions, or what the template comes to for its first row.

    Raises:
        BulkError: the template does not fit the input.
        Refused: the questions, or the template, cannot be read.
    """
    if template is not None:
        from structured_server.bulk.by_template import first_body
        from structured_server.templates import load

        with template_errors():
            return first_body(load(template), rows.rows(), survey.columns, given)
    assert questions_file is not None
    if given:
        raise click.UsageError("-v and -d are for --template.")
    try:
        # Through JSON: keys that YAML took for numbers or booleans are text there.
        body: dict[str, Any] = json.loads(json.dumps(read_questions(questions_file), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise Refused(
            f"{questions_file} holds something that JSON has no word for, such as a date.", BAD_INPUT
        ) from None
    return body


def _common(asked: dict[str, Any], samples: str | None, timeout: float) -> dict[str, Any]:
    """Return what all rows are asked with, without a state.

    An answer for which further draws could not be made is asked again rather than kept, unless the questions
    say otherwise: rows shall be comparable.
    """
    body = {name: value for name, value in asked.items() if name != "state"}
    for name, question in body["questions"].items():
        if not isinstance(question, dict):
            raise Refused(f"the question {name} must be an object.", BAD_INPUT)
    read = body.get("read", {})
    if not isinstance(read, dict):
        raise Refused("read must be an object.", BAD_INPUT)
    body["read"] = {"require_draws": True, **read}
    if samples is not None:
        body["read"]["samples"] = int(samples) if samples.isdecimal() else samples
    body.setdefault("deadline_ms", min(600_000, max(1, round(1000 * timeout))))
    return body


def _gold(given: tuple[str, ...], questions: list[str]) -> dict[str, str]:
    """Return the column of right answers by question."""
    found = {}
    for each in given:
        name, equals, column = each.partition("=")
        if not equals:
            if len(questions) != 1:
                raise click.UsageError(f"--gold {each}: there are several questions, say QUESTION=COLUMN.")
            name, column = questions[0], each
        if name not in questions:
            raise click.UsageError(f"--gold {each}: there is no question {name}.")
        found[name] = column
    return found


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
