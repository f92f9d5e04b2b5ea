"""`structured-server`: the group of commands, and how errors of ours end one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

import structured_server
from structured_server.cli.ask import ask
from structured_server.cli.batch import batch
from structured_server.cli.config import config
from structured_server.cli.configuration import COMMANDS, FileDefaults, settings_of
from structured_server.cli.decide import decide
from structured_server.cli.demo import demo
from structured_server.cli.exits import SERVER, USAGE
from structured_server.cli.keys import keys
from structured_server.cli.lint import lint
from structured_server.cli.log import log
from structured_server.cli.models import models
from structured_server.cli.ping import ping
from structured_server.cli.proxy import proxy
from structured_server.cli.serve import serve
from structured_server.cli.template import template
from structured_server.environment import service_links
from structured_server.errors import SettingsError, StructuredServerError

WANTS_HELP = f"{__name__}.wants_help"


class _Cli(click.Group):
    """Knows whether it is asked for help, which is given whatever is wrong in files of settings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WANTS_HELP] = not {"-h", "--help"}.isdisjoint(args)
        return super().parse_args(ctx, args)


@click.group(cls=_Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(structured_server.__version__, prog_name="structured-server")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Typed decisions with probabilities from a diffusion language model, in one denoise step."""
    if ctx.invoked_subcommand in COMMANDS and not ctx.meta[WANTS_HELP]:
        ctx.default_map = FileDefaults(settings_of(Path.cwd(), Path.home(), os.environ))


cli.add_command(serve)
cli.add_command(decide)
cli.add_command(ask)
cli.add_command(batch)
cli.add_command(template)
cli.add_command(lint)
cli.add_command(keys)
cli.add_command(log)
cli.add_command(models)
cli.add_command(ping)
cli.add_command(proxy)
cli.add_command(config)
cli.add_command(demo)


def main() -> None:
    """Run the command line; an error raised on purpose ends it with one line and exit code 2 or 5."""
    for name in service_links(os.environ):
        del os.environ[name]
    try:
        cli(prog_name="structured-server")
    except StructuredServerError as error:
        click.echo(f"structured-server: {error.message}" + (f" {error.hint}" if error.hint else ""), err=True)
        sys.exit(USAGE if isinstance(error, SettingsError) else SERVER)
