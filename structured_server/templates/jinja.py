"""Templates in Jinja: sandboxed, strict about what is not given, and with values that stay what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from structured_server.templates.errors import TemplateError
from structured_server.templates.text import inserted, to_json

_WITH_DEFAULT = ("default", "d")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, finalize=_finalise, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["tojson"] = to_json
    environment.filters["toJson"] = to_json
    return environment


def _finalise(value: Any) -> Any:
    return value if isinstance(value, jinja2.Undefined) else inserted(value)


class JinjaText:
    """The text of a template."""

    def __init__(self, name: str, text: str) -> None:
        """Read it.

        Raises:
            TemplateError: it is no Jinja; the message has the line.
        """
        self._name = name
        environment = _environment()
        try:
            tree = environment.parse(text)
            self._template = environment.from_string(text)
            self.names = frozenset(meta.find_undeclared_variables(tree) - set(environment.globals))
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{name}, line {error.lineno}: {error.message}.") from None
        except jinja2.TemplateError as error:
            raise TemplateError(f"{name}: {error}.") from None
        self.optional = self.names & frozenset(_optional(tree))

    def pieces(self, variables: Mapping[str, Any]) -> Iterator[str]:
        """Yield the text with the variables in their places.

        Raises:
            TemplateError: a value cannot stand where it is to, or a variable is not there after all.
        """
        try:
            yield from self._template.generate(**variables)
        except jinja2.UndefinedError as error:
            raise TemplateError(f"{self._name}{_line(error)}: {error}.") from None
        except jinja2.TemplateError as error:
            raise TemplateError(f"{self._name}{_line(error)}: {error}.") from None
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
            raise TemplateError(f"{self._name}{_line(error)}: {error}.") from None


def _optional(tree: nodes.Template) -> Iterator[str]:
    """Yield the variables that the template has a way of its own for where they are not given."""
    for each in tree.find_all((nodes.Filter, nodes.Test)):
        defaulted = isinstance(each, nodes.Filter) and each.name in _WITH_DEFAULT
        asked = isinstance(each, nodes.Test) and each.name in ("defined", "undefined")
        if (defaulted or asked) and isinstance(each.node, nodes.Name):
            yield each.node.name


def _line(error: BaseException) -> str:
    """Return where in the template an error was raised: Jinja writes its lines into the traceback."""
    at, found = error.__traceback__, None
    while at is not None:
        if at.tb_frame.f_code.co_filename == "<template>":
            found = at.tb_lineno
        at = at.tb_next
    return f", line {found}" if found else ""
