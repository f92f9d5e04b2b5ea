"""Templates in Go's syntax, as far as they only insert variables: what dgem's files mostly do.

Read are `{{ .name }}`, pipelines of the functions below, comments and trimming. All else is refused with the
way in which Jinja says it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from structured_server.templates.errors import TemplateError
from structured_server.templates.go_instead import INSTEAD
from structured_server.templates.page import Indented, Page, indented, to_json

_ACTION = re.compile(
    r'\{\{(?P<left>-(?=\s))?\s*(?P<inside>/\*.*?\*/|(?:"(?:[^"\\\n]|\\.)*"|`[^`]*`|[^"`])*?)\s*'
    r"(?P<right>(?<=\s)-)?\}\}",
    re.DOTALL,
)
_LEADING_DOT = re.compile(r"""\{\{-?\s*(?:/\*|(?:(?:[^{}"`]|"[^"\n]*"|`[^`]*`)*[\s(|])?\.[A-Za-z_])""")
_JINJA_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:(?P<variable>\.[A-Za-z_]\w*(?:\.\w+)*)|(?P<text>"(?:[^"\\\n]|\\.)*"|`[^`]*`)"""
    r"""|(?P<number>-?\d+(?:\.\d+)?)|(?P<word>[A-Za-z_]\w*)|(?P<pipe>\|)|(?P<other>\S))"""
)
_LITERALS = {"true": True, "false": False, "nil": None}


def _default(fallback: Any, value: Any = None) -> Any:
    return value or fallback


def _indent(spaces: Any, value: Any) -> Indented:
    return indented(value, spaces)


def _text(name: str, change: Callable[[str], str]) -> Callable[[Any], str]:
    def changed(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError(f"{name} needs text")
        return change(value)

    return changed


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "toJson": to_json,
    "toPrettyJson": lambda value: to_json(value, indent=2),
    "default": _default,
    "indent": _indent,
    "upper": _text("upper", str.upper),
    "lower": _text("lower", str.lower),
    "trim": _text("trim", str.strip),
}


def is_go(text: str) -> bool:
    """Tell whether a template is in Go's syntax: its variables begin with a dot."""
    return _LEADING_DOT.search(_JINJA_COMMENT.sub("", text)) is not None


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    said: str


@dataclass(frozen=True, slots=True)
class _Action:
    """An insertion: commands whose values go from one to the next."""

    line: int
    commands: tuple[tuple[_Token, ...], ...]

    @property
    def name(self) -> str:
        """The first variable, for messages."""
        return next((token.said for token in _variables(self)), "...")

    @property
    def defaulted(self) -> bool:
        """Whether it has a way of its own where a variable is not given."""
        return any(token.said == "default" for command in self.commands for token in command)


class GoText:
    """The text of a template."""

    def __init__(self, name: str, text: str) -> None:
        """Read it.

        Raises:
            TemplateError: it holds more than is read here; the message has the line and Jinja's way.
        """
        self._name = name
        self._parts = tuple(self._read(text))
        actions = [part for part in self._parts if isinstance(part, _Action)]
        uses = [(token.said[1:], action.defaulted) for action in actions for token in _variables(action)]
        self.names = frozenset(name for name, _ in uses)
        self.defaults = dict.fromkeys(self.names - {name for name, own in uses if not own})

    def write(self, page: Page, variables: Mapping[str, Any]) -> None:
        """Write the text, with marks for the variables.

        Raises:
            TemplateError: a value cannot stand where it is to.
        """
        for part in self._parts:
            if isinstance(part, str):
                page.write(part)
                continue
            try:
                page.write(page.place(_value(part, variables), part.line, part.name))
            except (ValueError, TypeError) as error:
                raise TemplateError(f"{self._name}, line {part.line}: {error}.") from None

    def _read(self, text: str) -> Iterator[str | _Action]:
        at, trim = 0, False
        for found in _ACTION.finditer(text):
            before = text[at : found.start()]
            before = before.lstrip() if trim else before
            yield before.rstrip() if found["left"] else before
            inside, line = found["inside"], text.count("\n", 0, found.start()) + 1
            if not inside.startswith("/*"):
                yield _Action(line, self._commands(inside, line))
            at, trim = found.end(), bool(found["right"])
        rest = text[at:].lstrip() if trim else text[at:]
        if "{{" in rest:
            line = text.count("\n", 0, at + text[at:].index("{{")) + 1
            raise TemplateError(f"{self._name}, line {line}: {{{{ without an end.")
        yield rest

    def _commands(self, inside: str, line: int) -> tuple[tuple[_Token, ...], ...]:
        commands: list[list[_Token]] = [[]]
        for found in _TOKEN.finditer(inside):
            token = _Token(str(found.lastgroup), found[str(found.lastgroup)])
            if token.kind == "pipe":
                commands.append([])
                continue
            self._refuse(token, line)
            commands[-1].append(token)
        for number, command in enumerate(commands):
            functions = [token for token in command if token.kind == "word" and token.said not in _LITERALS]
            first = command[0] if command else None
            if first is None or functions[1:] or (functions and functions[0] is not first):
                raise TemplateError(f"{self._name}, line {line}: {inside!r} is no pipeline of single calls.")
            if not functions and (number or len(command) > 1):
                raise TemplateError(f"{self._name}, line {line}: {first.said} is no function.")
        return tuple(map(tuple, commands))

    def _refuse(self, token: _Token, line: int) -> None:
        where = f"{self._name}, line {line}"
        if token.kind in ("word", "other") and token.said in INSTEAD:
            raise TemplateError(
                f"{where}: `{token.said}` of Go templates is not read here; Jinja says {INSTEAD[token.said]}."
            )
        if token.kind == "word" and token.said not in (*FUNCTIONS, *_LITERALS):
            raise TemplateError(
                f"{where}: the function {token.said} is not read here. There are {', '.join(FUNCTIONS)}; "
                "Jinja has more, as {{ name | filter }}."
            )
        if token.kind == "variable" and "." in token.said[1:]:
            raise TemplateError(
                f"{where}: {token.said} is a field of a variable; in Jinja write {{{{ {token.said[1:]} }}}}."
            )
        if token.kind == "other":
            raise TemplateError(
                f"{where}: {token.said!r} is not read here: variables, text, and {', '.join(FUNCTIONS)} are."
            )


def _variables(action: _Action) -> Iterator[_Token]:
    return (token for command in action.commands for token in command if token.kind == "variable")


def _value(action: _Action, variables: Mapping[str, Any]) -> Any:
    piped: Sequence[Any] = ()
    for command in action.commands:
        first, *others = command
        if first.kind == "word" and first.said in FUNCTIONS:
            piped = (_called(first.said, [*(_operand(token, variables) for token in others), *piped]),)
        else:
            piped = (_operand(first, variables),)
    return piped[0]


def _called(name: str, given: Sequence[Any]) -> Any:
    function = FUNCTIONS[name]
    try:
        signature(function).bind(*given)
    except TypeError:
        raise ValueError(f"{name} is not called with {len(given)} values") from None
    return function(*given)


def _operand(token: _Token, variables: Mapping[str, Any]) -> Any:
    if token.kind == "variable":
        return variables.get(token.said[1:])
    if token.kind == "text":
        if token.said.startswith("`"):
            return token.said[1:-1]
        return json.loads(token.said)
    if token.kind == "number":
        return float(token.said) if "." in token.said else int(token.said)
    return _LITERALS[token.said]
