"""`structured-server decide`: one decision from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

import click

from structured_server.cli.asking import ask
from structured_server.cli.exits import BAD_INPUT, UNDECIDED, Refused
from structured_server.cli.options import Target, model_option, server_options, stats_option
from structured_server.cli.request import read_images, read_questions, read_state, samples_of
from structured_server.cli.template import rendered
from structured_server.cli.variables import read_variables, template_option, variable_options

_EPILOG = """\b
Examples:
  structured-server decide -q questions.yaml "Checkout answers 502 since the rollout"
  structured-server decide -q questions.yaml -f alert.json --samples 4
  structured-server decide -t support_triage -v 'ticket=I cannot log in since noon' --stats
  tail -n 50 app.log | structured-server decide -q questions.yaml -o json -

\b
Exit codes: 0 all decided, 3 something undecided, 4 bad input, 5 server, 6 authentication.
"""


@click.command(epilog=_EPILOG)
@click.argument("state", required=False)
@click.option(
    "-q",
    "--questions",
    "--schema",
    "questions_file",
    type=click.Path(path_type=Path),
    help="Questions, JSON or YAML.",
)
@template_option
@variable_options
@click.option("--state", "state_option", help="The state, in place of the argument.")
@click.option(
    "-f",
    "--state-file",
    type=click.Path(path_type=Path),
    help="Read the state from a file; .json is read as JSON.",
)
@click.option("--json-state", is_flag=True, help="The state is JSON, wherever it comes from.")
@click.option(
    "-i",
    "--image",
    "images",
    multiple=True,
    type=click.Path(path_type=Path),
    help="An image that belongs to the state; may be given several times.",
)
@server_options
@model_option
@click.option("--samples", help='Draws to average, 1 to 32, or "auto".')
@click.option(
    "--layout",
    type=click.Choice(["schema_first", "document_first"]),
    help="Questions before the state or after.",
)
@click.option(
    "--isolate", type=click.Choice(["none", "noul", "all", "auto"]), help="Which questions are read apart."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print.",
)
@stats_option
def decide(
    state: str | None,
    state_option: str | None,
    questions_file: Path | None,
    template: str | None,
    variables: tuple[str, ...],
    data: Path | None,
    state_file: Path | None,
    json_state: bool,
    images: tuple[Path, ...],
    server: Target,
    model: str | None,
    samples: str | None,
    layout: str | None,
    isolate: str | None,
    output: Literal["table", "json", "csv"],
    stats: bool,
) -> None:
    """Answer typed questions about STATE: text, or - for standard input."""
    if (questions_file is None) == (template is None):
        raise Refused("say once what is asked: --questions FILE, or --template NAME_OR_FILE.", BAD_INPUT)
    if state is not None and state_option is not None:
        raise Refused("give the state once: as an argument, or as --state.", BAD_INPUT)
    state = state_option if state is None else state
    if template is not None:
        body = rendered(template, read_variables(variables, data))
    else:
        assert questions_file is not None
        body = read_questions(questions_file)
        if variables or data is not None:
            raise Refused("-v and -d are for --template.", BAD_INPUT)
    if state is not None or state_file is not None or template is None or "state" not in body:
        body["state"] = read_state(state, state_file, json_state)
    if images:
        body["images"] = read_images(images)
    if model:
        body["model"] = model
    for name, value in (("samples", samples_of(samples)), ("layout", layout), ("isolate", isolate)):
        if value is not None:
            body.setdefault("read", {})[name] = value
    answer = ask(server, body)
    show(answer, output)
    if stats:
        from structured_server.cli.stats import tell_decision

        tell_decision(answer)
    sys.exit(UNDECIDED if answer["undecided"] else 0)


def show(answer: dict[str, Any], output: Literal["table", "json", "csv"]) -> None:
    """Print an answer."""
    if output == "json":
        click.echo(json.dumps(answer, ensure_ascii=False, indent=2))
    elif output == "csv":
        from structured_server.cli.csv_answers import print_csv

        print_csv(answer)
    else:
        from structured_server.cli.table import print_answers

        print_answers(answer)
