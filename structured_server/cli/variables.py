"""Variables of templates, as flags and files give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from structured_server.cli.exits import BAD_INPUT, Refused
from structured_server.cli.yaml_file import read_file, read_yaml

template_option = click.option(
    "-t", "--template", help="A file *.json.tmpl or *.yaml.tmpl, or the name of a packaged template."
)
_VARIABLES = (
    click.option(
        "-v",
        "--var",
        "variables",
        multiple=True,
        metavar="NAME=TEXT",
        help="A variable: text; NAME=@FILE is a file's, NAME:=JSON is JSON.",
    ),
    click.option(
        "-d",
        "--data",
        "data",
        type=click.Path(path_type=Path),
        help="An object of variables, JSON or YAML; flags go before it.",
    ),
)


def variable_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options."""
    for add in reversed(_VARIABLES):
        command = add(command)
    return command


def read_variables(given: Sequence[str], data: Path | None) -> dict[str, Any]:
    """Return the variables: those of the file, and over them those of the flags.

    Raises:
        Refused: a file cannot be read, or a flag is none.
    """
    found = {} if data is None else _object(data)
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.rstrip(":"):
            raise Refused(f"-v {each}: write NAME=TEXT, NAME=@FILE or NAME:=JSON.", BAD_INPUT)
        if name.endswith(":"):
            found[name[:-1]] = _json(each, value)
        elif value.startswith("@"):
            found[name] = read_file(Path(value[1:]))
        else:
            found[name] = value
    return found


def _json(flag: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as error:
        raise Refused(f"-v {flag} is no JSON: {error}.", BAD_INPUT) from None


def _object(file: Path) -> dict[str, Any]:
    found = read_yaml(file)
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise Refused(f"{file} must hold an object: variables by name.", BAD_INPUT)
    return found
