"""`structured-server log`: what the decision log holds, out of it, asked again, and gone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from structured_server.cli.exits import BAD_INPUT, DIFFERENT, Refused
from structured_server.cli.options import Target, output_option, server_options

if TYPE_CHECKING:
    from structured_server.decision_log import Selection, Store

_EPILOG = """\b
Examples:
  structured-server log export decisions.db --since 2026-11-30 > decisions.jsonl
  structured-server log replay decisions.db --url http://127.0.0.1:8080 --limit 200
  structured-server log delete decisions.db --metadata customer=4711
"""
_EXPORT_EPILOG = """\b
Examples:
  structured-server log export decisions.db | jq '.decision.answers.team.answer'
  structured-server log export decisions.db --since 2026-11-30T08:00 --until 2026-11-30T09:00
  structured-server log export decisions.db --id dec_5f0e2d9c41aa7b33

Each line is one record, the oldest first: docs/decision-log.md describes it.
"""
_REPLAY_EPILOG = """\b
Examples:
  structured-server log replay decisions.db --limit 200
  structured-server log replay decisions.db --url https://candidate.example.org --tolerance 0.1
  structured-server log replay decisions.db --question-set qs_1f2e3d4c -o json

\b
Exit codes: 0 all within the tolerance with the same answers, 3 some are not, 4 nothing could be asked
again, 5 server, 6 authentication.
"""
_DELETE_EPILOG = """\b
Examples:
  structured-server log delete decisions.db --id dec_5f0e2d9c41aa7b33
  structured-server log delete decisions.db --until 2026-11-01
  structured-server log delete decisions.db --metadata customer=4711
  structured-server log delete decisions.db --state-file ticket.txt --key-file decision-log.key

Records that meet all conditions are deleted, and overwritten in the file.
"""


def _time(_: click.Context, __: click.Parameter, value: datetime | None) -> float | None:
    return None if value is None else value.replace(tzinfo=UTC).timestamp()


def _pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for each in values:
        name, equals, value = each.partition("=")
        if not equals:
            raise click.BadParameter(f"must be NAME=VALUE, got {each!r}.")
        pairs.append((name, value))
    return tuple(pairs)


_SELECTING = (
    click.argument("file", type=click.Path(path_type=Path)),
    click.option("--id", "identifiers", multiple=True, help="A decision's id; may be repeated."),
    click.option("--since", type=click.DateTime(), callback=_time, help="From this time on, in UTC."),
    click.option("--until", type=click.DateTime(), callback=_time, help="Before this time, in UTC."),
    click.option("--question-set", help="Decisions of this question set: qs_ and its digits."),
    click.option(
        "--metadata",
        multiple=True,
        callback=_pairs,
        help="Decisions whose request had this NAME=VALUE; may be repeated.",
    ),
)


def _selecting(command: Callable[..., None]) -> Callable[..., None]:
    for add in reversed(_SELECTING):
        command = add(command)
    return command


@click.group(epilog=_EPILOG)
def log() -> None:
    """Read the decision log that serve --decision-log writes."""


@log.command(epilog=_EXPORT_EPILOG)
@_selecting
def export(file: Path, **asked: Any) -> None:
    """Write the records of FILE as JSON lines."""
    with _open(file) as store:
        for record in store.select(_selection(asked)):
            click.echo(json.dumps(record, ensure_ascii=False))


@log.command(epilog=_REPLAY_EPILOG)
@_selecting
@server_options
@click.option("--limit", type=click.IntRange(min=1), help="Ask so many again at most, the oldest first.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1),
    default=0.02,
    show_default=True,
    help="How far a probability may be from the recorded one.",
)
@click.option(
    "--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Requests at once."
)
@output_option
def replay(
    file: Path,
    server: Target,
    limit: int | None,
    tolerance: float,
    parallel: int,
    output: str,
    **asked: Any,
) -> None:
    """Ask the decisions of FILE again, and compare. They must have been recorded with their states."""
    from structured_server.cli.replay import ask_again, print_summary, summary_of

    with _open(file) as store:
        records = store.select(_selection(asked), limit=limit or -1)
        replayed = ask_again(records, server, parallel)
    summary = summary_of(replayed, tolerance)
    if output == "json":
        click.echo(json.dumps(summary, ensure_ascii=False, indent=2))
    else:
        print_summary(summary)
    if not summary["compared"]:
        raise Refused("nothing could be asked again.", BAD_INPUT)
    sys.exit(DIFFERENT if summary["different"] else 0)


@log.command(epilog=_DELETE_EPILOG)
@_selecting
@click.option("--state-file", type=click.Path(path_type=Path), help="Decisions about just this text.")
@click.option(
    "--key-file", type=click.Path(path_type=Path), help="The server's --decision-log-key-file, for that."
)
def delete(file: Path, state_file: Path | None, key_file: Path | None, **asked: Any) -> None:
    """Delete records of FILE; the server may go on writing to it."""
    from dataclasses import replace

    from structured_server.decision_log import Selection, Store, load_key

    if (state_file is None) != (key_file is None):
        raise click.UsageError("--state-file and --key-file need each other.")
    selection = _selection(asked)
    if state_file is not None and key_file is not None:
        try:
            text = state_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"cannot read {state_file}: {error}.", BAD_INPUT) from None
        selection = replace(selection, state_hash=load_key(str(key_file)).state(text))
    if selection == Selection():
        raise click.UsageError("say which records: --id, --since, --until, --metadata or --state-file.")
    _open(file).close()  # it is there, and is one
    with Store.open(str(file)) as store:
        click.echo(f"{store.delete(selection)} deleted, {store.count()} left")


def _selection(asked: dict[str, Any]) -> Selection:
    from structured_server.decision_log import Selection

    return Selection(**asked)


def _open(file: Path) -> Store:
    from structured_server.decision_log import Store
    from structured_server.errors import DecisionLogError

    try:
        return Store.read(str(file))
    except DecisionLogError as error:
        raise Refused(error.message, BAD_INPUT) from None
