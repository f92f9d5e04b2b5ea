"""From the options of `structured-server batch` to the work that they ask for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from structured_server.bulk.asker import HttpAsker
from structured_server.bulk.bodies import StateBodies, require_column, state_bodies
from structured_server.bulk.by_template import TemplateBodies, first_body
from structured_server.bulk.files import Places
from structured_server.bulk.flat import columns_of, refuse_collisions
from structured_server.bulk.lines import Lines
from structured_server.bulk.manifest import Manifest, digest_of
from structured_server.bulk.rows import Source, Survey, format_of
from structured_server.bulk.run import Job
from structured_server.bulk.tally import Tally
from structured_server.bulk.work import Asking, Reporting, Work
from structured_server.cli.exits import BAD_INPUT, Refused
from structured_server.cli.options import Target
from structured_server.cli.request import read_questions
from structured_server.cli.template import template_errors
from structured_server.cli.variables import read_variables
from structured_server.templates import load


def prepared(
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
    """Put together what the options say, by the names of the command's parameters.

    Raises:
        BulkError: they cannot be followed.
        Refused: a file of questions, variables or settings cannot be used.
    """
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
        with template_errors():
            return first_body(load(template), rows.rows(), survey.columns, given)
    assert questions_file is not None
    if given:
        raise click.UsageError("-v and -d are for --template.")
    return read_questions(questions_file)


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
