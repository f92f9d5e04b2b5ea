"""Options that several commands have: which server to ask, and how to print."""

from __future__ import annotations

from collections.abc import Callable

import click

from structured_server.cli.durations import Duration
from structured_server.settings import PREFIX

DGEM = "DGEM_"
"""What the variables of another client begin with, whose settings work here too."""


def variables(name: str) -> list[str]:
    """Return the environment variables that set an option, the first of which wins."""
    return [f"{PREFIX}{name}", f"{DGEM}{name}"]


_SERVER = (
    click.option(
        "-u",
        "--url",
        envvar=variables("URL"),
        default="http://127.0.0.1:8080",
        show_default=True,
        help="The server, with or without /v1.",
    ),
    click.option("--token", envvar=variables("TOKEN"), help="API key to send as a bearer token."),
    click.option(
        "--timeout",
        envvar=variables("TIMEOUT"),
        type=Duration(),
        default=30.0,
        show_default=True,
        help="How long to wait: 60, 60s, 1m30s.",
    ),
)

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print.",
)

model_option = click.option(
    "-m", "--model", envvar=variables("MODEL"), help="The model's name; the server's own by default."
)

stats_option = click.option(
    "--stats/--no-stats",
    envvar=variables("STATS"),
    default=False,
    help="Tell times, reads and tokens on standard error.",
)


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options."""
    for add in reversed(_SERVER):
        command = add(command)
    return command
