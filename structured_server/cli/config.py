"""`structured-server config`: the client's settings, and where each comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import click
from click.core import ParameterSource

from structured_server.cli.configuration import settings_of
from structured_server.cli.options import (
    model_option,
    output_option,
    server_settings,
    stats_option,
    variables,
)

_EPILOG = """\b
Examples:
  structured-server config show
  DGEM_URL=https://models.example.com/v1 structured-server config show
  structured-server config show -u https://triage-abc.a.run.app -o json
"""

HIDDEN = "(set)"
SECRET = ("token",)


@click.group()
def config() -> None:
    """The client's settings."""


@config.command(epilog=_EPILOG)
@server_settings
@model_option
@stats_option
@output_option
@click.pass_context
def show(ctx: click.Context, /, output: Literal["table", "json"], **values: Any) -> None:
    """Show each setting, and where its value comes from: flag, variable, file or default."""
    rows = {name: (_shown(name, value), _source(ctx, name)) for name, value in sorted(values.items())}
    if output == "json":
        found = {name: {"value": value, "from": source} for name, (value, source) in rows.items()}
        click.echo(json.dumps(found, indent=2))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "from"):
        table.add_column(heading, overflow="fold")
    for name, (value, source) in rows.items():
        table.add_row(Text(name), Text("" if value is None else str(value)), Text(source))
    Console(highlight=False).print(table)


def _shown(name: str, value: Any) -> Any:
    return HIDDEN if name in SECRET and value else value


def _source(ctx: click.Context, name: str) -> str:
    source = ctx.get_parameter_source(name)
    if source is ParameterSource.COMMANDLINE:
        return "flag"
    if source is ParameterSource.ENVIRONMENT:
        named = "IMPERSONATE_SERVICE_ACCOUNT" if name == "impersonate" else name.upper()
        return next((each for each in variables(named) if os.environ.get(each)), "environment")
    if source is ParameterSource.DEFAULT_MAP:
        return str(settings_of(Path.cwd(), Path.home(), os.environ)[name].file)
    return "default"
