"""Rendering a chat template as transformers does. Templates are programs of strangers: they run sandboxed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from structured_server.errors import TokenizerError

Message = Mapping[str, str]


class TemplateRefused(Exception):
    """The template raised an error on these messages."""


class ChatTemplate:
    """A compiled chat template with the special tokens it may name."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        """Compile the template.

        Raises:
            TokenizerError: its syntax is wrong.
        """
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._special = dict(special)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TokenizerError(
                f"line {error.lineno} of the chat template is not Jinja: {error.message}"
            ) from error

    def render(self, messages: Sequence[Message], *, reply: bool, thinking: bool = False) -> str:
        """Render messages; with `reply` up to where the model's reply begins; it may be told to think.

        Raises:
            TemplateRefused: the template raised an error.
        """
        try:
            return self._template.render(
                self._special,
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=reply,
                enable_thinking=thinking,
            )
        except Exception as error:  # a template can raise anything
            raise TemplateRefused(f"{type(error).__name__}: {error}") from error


class _Generation(jinja2.ext.Extension):
    """The `{% generation %}` block, which marks a model's words for training and renders as its body."""

    tags = {"generation"}  # noqa: RUF012 - the name and type that jinja2 asks for

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Return the block's body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON; jinja2's own filter escapes it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 - local time, as in transformers
