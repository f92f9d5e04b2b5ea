"""Options that several commands have: which server to ask, and how to print."""

from __future__ import annotations

from collections.abc import Callable

import click

from structured_server.settings import PREFIX

_SERVER = (
    click.option(
        "-u",
        "--url",
        envvar=f"{PREFIX}URL",
        default="http://127.0.0.1:8080",
        show_default=True,
        help="The server.",
    ),
    click.option("--token", envvar=f"{PREFIX}TOKEN", help="API key to send as a bearer token."),
    click.option(
        "--timeout",
        envvar=f"{PREFIX}TIMEOUT",
        type=float,
        default=30.0,
        show_default=True,
        help="Seconds to wait.",
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


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options."""
    for add in reversed(_SERVER):
        command = add(command)
    return command
