"""`structured-server template`: templates, what they want, and what they come to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import click

from structured_server.cli.exits import BAD_INPUT, Refused
from structured_server.cli.variables import read_variables, variable_options

_LIST = """\b
Examples:
  structured-server template list
"""
_SHOW = """\b
Examples:
  structured-server template show support_triage
  structured-server template show mine.yaml.tmpl --source
"""
_RENDER = """\b
Examples:
  structured-server template render support_triage -v 'ticket=I cannot log in'
  structured-server template render mine.yaml.tmpl -d vars.json -v text=@letter.txt -o yaml
  structured-server template render support_triage --example --schema
"""
_NEW = """\b
Examples:
  structured-server template new triage.yaml.tmpl
  structured-server template new mine.json.tmpl --from support_triage
"""


@click.group()
def template() -> None:
    """Questions and state in one file, with places for what changes."""


@template.command("list", epilog=_LIST)
def list_templates() -> None:
    """List the packaged templates with the variables that they want."""
    from rich.console import Console
    from rich.table import Table

    from structured_server.templates import packaged

    table = Table(box=None, pad_edge=False)
    for heading in ("template", "variables", "asks"):
        table.add_column(heading, overflow="fold")
    for each in packaged():
        names = [each.name if each.required else f"[{each.name}]" for each in each.variables]
        table.add_row(each.name, " ".join(names).replace("[", "\\["), each.description)
    Console(highlight=False).print(table)


@template.command(epilog=_SHOW)
@click.argument("source", metavar="NAME_OR_FILE")
@click.option("--source", "as_it_is", is_flag=True, help="Print the file as it is.")
def show(source: str, as_it_is: bool) -> None:
    """Show what a template asks and which variables it wants."""
    with template_errors():
        from structured_server.templates import load

        found = load(source)
    if as_it_is:
        click.echo(found.source, nl=False)
        return
    click.echo(found.description or "(nothing is said of it)")
    for each in found.variables:
        default = "" if each.default is None else f", default {json.dumps(each.default, ensure_ascii=False)}"
        needed = "" if each.required else f" (may be left out{default})"
        example = "" if each.example is None else f', such as "{each.example}"'
        click.echo(f"  {each.name}{needed}{': ' + each.description if each.description else ''}{example}")


@template.command(epilog=_RENDER)
@click.argument("source", metavar="NAME_OR_FILE")
@variable_options
@click.option("--example", is_flag=True, help="Take the template's own examples for what is not given.")
@click.option("--schema", is_flag=True, help="Print the questions alone.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), default="json", show_default=True)
def render(
    source: str,
    variables: tuple[str, ...],
    data: Path | None,
    example: bool,
    schema: bool,
    output: Literal["json", "yaml"],
) -> None:
    """Print the request that a template comes to."""
    body = rendered(source, read_variables(variables, data), example=example)
    shown: Any = body["questions"] if schema else body
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))


@template.command(epilog=_NEW)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "origin", default="incident_triage", show_default=True, help="Begin with this one.")
def new(file: Path, origin: str) -> None:
    """Write a template to begin with. A file that is there already is left alone."""
    with template_errors():
        from structured_server.templates import load, parse

        text = load(origin).source
        kinds = load(origin).kind, parse(str(file), file.name, text).kind
        if kinds[0] != kinds[1]:
            raise Refused(f"{origin} is {kinds[0].upper()}: call it *.{kinds[0]}.tmpl.", BAD_INPUT)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise Refused(f"{file} is there already.", BAD_INPUT) from None
    except OSError as error:
        raise Refused(f"cannot write {file}: {error.strerror}.", BAD_INPUT) from None
    click.echo(f"Wrote {file}. Try it: structured-server template show {file}")


def rendered(source: str, variables: dict[str, Any], *, example: bool = False) -> dict[str, Any]:
    """Return the request that a template comes to, by its own examples where they are wanted.

    Raises:
        Refused: there is no such template, or it cannot be filled in.
    """
    with template_errors():
        from structured_server.templates import load

        template = load(source)
        return template.render({**template.example, **variables} if example else variables)


@contextmanager
def template_errors() -> Iterator[None]:
    """What is wrong with a template ends a command with a message.

    Raises:
        Refused: something is.
    """
    from structured_server.templates import TemplateError

    try:
        yield
    except TemplateError as error:
        raise Refused(str(error), BAD_INPUT) from None
