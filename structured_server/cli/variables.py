"""Variables of templates, as flags and files give them."""

from __future__ import annotations

import sys
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
        help="A variable: text; NAME=@FILE is a file's, or standard input's with -; NAME:=JSON is JSON.",
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
            found[name] = _text_of(name, value[1:])
        else:
            found[name] = value
    return found


def _text_of(name: str, file: str) -> str:
    if file == "-":
        try:
            return sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("what comes from standard input is not UTF-8 text.", BAD_INPUT) from None
    try:
        return read_file(Path(file))
    except Refused as error:
        raise Refused(
            f"{error.message} Text that begins with @ is given as {name}:='\"@...\"'.", BAD_INPUT
        ) from None


def _json(flag: str, value: str) -> Any:
    from structured_server.templates.reading import Malformed, read_json

    try:
        return read_json(value)
    except Malformed as error:
        raise Refused(f"-v {flag[:60]} is no JSON: {error.problem}.", BAD_INPUT) from None


def _object(file: Path) -> dict[str, Any]:
    found = read_yaml(file)
    if not isinstance(found, dict):
        raise Refused(f"{file} must hold an object: variables by name.", BAD_INPUT)
    return found
