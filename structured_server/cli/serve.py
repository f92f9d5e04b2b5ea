"""`structured-server serve`: settings from flags and environment, then the server."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

import click

from structured_server import environment
from structured_server import settings as known
from structured_server.settings import Settings

_TYPES: dict[str, type[str | int | float]] = {"str": str, "int": int, "float | None": float}

_EPILOG = """\b
Examples:
  structured-server serve --upstream http://127.0.0.1:8000 --model dgemma --tokenizer ./model
  structured-server serve --backend embedded
  structured-server serve --backend transformers --model ./model --device cuda
  structured-server serve --host 0.0.0.0 --port 8080 --upstream http://127.0.0.1:8000 \\
      --model cyankiwi/diffusiongemma-26B-A4B-it-AWQ-INT4 --canvas 64

Each option is also an environment variable, STRUCTURED_SERVER_ and its name in capitals. Flags win.
"""


def _option(each: Field[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    annotation = str(each.type)
    default = None if each.default is MISSING else each.default
    name = known.flag(each.name)
    shared: dict[str, Any] = {
        "envvar": known.variable(each.name),
        "help": each.metadata["help"],
        "default": default,
        "show_default": default not in (None, "", ()),
    }
    if annotation.startswith("tuple"):
        return click.option(f"--{name}", each.name, multiple=True, **shared)
    if annotation == "bool":
        return click.option(f"--{name}/--no-{name}", each.name, **shared)
    if options := known.choices(annotation):
        return click.option(f"--{name}", each.name, type=click.Choice(options), **shared)
    return click.option(f"--{name}", each.name, type=_TYPES[annotation], **shared)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    for each in reversed(fields(Settings)):
        command = _option(each)(command)
    return command


@click.command(epilog=_EPILOG)
@_with_settings
def serve(**values: Any) -> None:
    """Serve decisions over HTTP: read by a vLLM server, by the demo model, or by transformers."""
    environment.refuse_unknown(os.environ)
    settings = Settings(**values)
    environment.refuse_demo_model(settings, os.environ)
    # Imported here: --help and mistakes in settings should not wait for it.
    from structured_server.api.server import serve as run

    run(settings)
