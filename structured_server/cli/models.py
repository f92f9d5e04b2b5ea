"""`structured-server models`: what a server serves."""

from __future__ import annotations

import json
from typing import Literal

import click

from structured_server.cli.asking import asking
from structured_server.cli.options import Target, output_option, server_options

_EPILOG = """\b
Examples:
  structured-server models
  structured-server models -u https://triage-abc.a.run.app -o json

\b
Exit codes: 0 done, 4 bad input, 5 server, 6 authentication.
"""


@click.command(epilog=_EPILOG)
@server_options
@output_option
def models(server: Target, output: Literal["table", "json"]) -> None:
    """List the names of the models that a server answers to."""
    with asking(server) as client:
        names = client.models()
    click.echo(json.dumps(names) if output == "json" else "\n".join(names))
