"""Templates in Jinja: sandboxed, strict about what is not given, and with values that stay what they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from structured_server.templates.errors import TemplateError
from structured_server.templates.page import Indented, Json, Page, TooLong, indented, to_json

_PAGE, _PLACE = " page", " place"  # no template can say these names
_WITH_DEFAULT = ("default", "d")
_SYNTAX = re.compile(r"[\s,:\[\]{}]*")
FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "join"),
    *("last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse"),
    *("round", "select", "selectattr", "sort", "string", "striptags", "sum", "title", "trim", "truncate"),
    *("unique", "upper", "wordcount"),
)
"""Jinja's own that are read here: none of them writes markup, and none makes much of little."""
_OTHER_FILES = "a template is one file: write it out here"
_CAPTURED = (
    "what it writes could not be told from a variable's text: use {% for %}, {% if %} and {% set x = ... %}"
)
_REFUSED: Mapping[type[nodes.Node], tuple[str, str]] = {
    nodes.Macro: ("macro", _CAPTURED),
    nodes.CallBlock: ("call", _CAPTURED),
    nodes.FilterBlock: ("filter", _CAPTURED),
    nodes.AssignBlock: ("set without =", _CAPTURED),
    nodes.Extends: ("extends", _OTHER_FILES),
    nodes.Block: ("block", _OTHER_FILES),
    nodes.Include: ("include", _OTHER_FILES),
    nodes.Import: ("import", _OTHER_FILES),
    nodes.FromImport: ("from", _OTHER_FILES),
    nodes.Pow: ("**", "write the number"),
}


class _Missing(jinja2.StrictUndefined):
    """Says what an object has where it has not what was asked for."""

    @property
    def _undefined_message(self) -> str:
        if isinstance(self._undefined_obj, Mapping):
            there = ", ".join(map(str, self._undefined_obj)) or "nothing"
            return f"there is no {self._undefined_name} in an object that has {there}"
        return super()._undefined_message


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("*", "%"))  # of text they make much of little

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up a field of an object, never a method that is called like it."""
        if isinstance(obj, Mapping):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Calculate with numbers only."""
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise TypeError(f"{operator} is for numbers only")
        return super().call_binop(context, operator, left, right)


@jinja2.pass_context
def _place(context: Context, value: Any, line: int, name: str) -> str:
    inner = value.value if isinstance(value, Indented) else value
    if isinstance(inner, jinja2.Undefined):
        return str(inner)  # raises, unless it is an `if` without its `else`
    page: Page = context[_PAGE]
    return page.place(value, line, name)


def _to_json(value: Any, indent: int | None = None) -> Json:
    return to_json(str(value) if isinstance(value, jinja2.Undefined) else value, indent)


def _indent(value: Any, width: Any = 4, first: bool = False) -> Indented:
    moved = indented(value, width)
    return moved if first else Indented(value, 0)


def _environment() -> _Environment:
    environment = _Environment(undefined=_Missing, keep_trailing_newline=True, autoescape=False)
    environment.filters = {name: environment.filters[name] for name in FILTERS}
    environment.filters |= {"tojson": _to_json, "toJson": _to_json, "indent": _indent, _PLACE: _place}
    environment.globals = {"range": environment.globals["range"]}
    return environment


class JinjaText:
    """The text of a template."""

    def __init__(self, name: str, text: str) -> None:
        """Read it.

        Raises:
            TemplateError: it is no Jinja, or more than is read here; the message has the line.
        """
        self._name = name
        environment = _environment()
        try:
            tree = environment.parse(text)
            self.names = frozenset(meta.find_undeclared_variables(tree) - set(environment.globals))
            self.defaults = {each: default for each, default in _optional(tree) if each in self.names}
            self._refuse(tree)
            _have_values_placed(tree)
            code = environment.compile(tree)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"{name}, line {error.lineno}: {_with_filters(str(error.message))}."
            ) from None
        except RecursionError:
            raise TemplateError(f"{name} is nested too deep.") from None
        except (jinja2.TemplateError, ValueError, MemoryError, SyntaxError) as error:
            raise TemplateError(f"{name}: {error}.") from None
        self._template = jinja2.Template.from_code(environment, code, environment.globals)

    def write(self, page: Page, variables: Mapping[str, Any]) -> None:
        """Write the text, with marks for the variables.

        Raises:
            TemplateError: a value cannot stand where it is to, or a variable is not there after all.
        """
        try:
            for piece in self._template.generate({**variables, _PAGE: page}):
                page.write(piece)
        except TooLong:
            raise
        except Exception as error:  # what a filter makes of a value that it is not for
            raise TemplateError(
                f"{self._name}{_line(error)}: {str(error) or type(error).__name__}."
            ) from None

    def _refuse(self, tree: nodes.Template) -> None:
        for kind, (word, why) in _REFUSED.items():
            for node in tree.find_all(kind):
                raise TemplateError(f"{self._name}, line {node.lineno}: `{word}` is not read here: {why}.")
        for call in tree.find_all(nodes.Call):
            called = call.node
            if isinstance(called, nodes.Name) and called.name == "range":
                continue
            word = getattr(called, "attr", getattr(called, "name", "it"))
            raise TemplateError(
                f"{self._name}, line {call.lineno}: {word}() is not called here: use a filter, as in "
                "{{ name | upper }}. There are " + f"{', '.join(FILTERS)}, indent, tojson."
            )


def _have_values_placed(tree: nodes.Template) -> None:
    """Have all that is inserted go through `_place`, except what the template itself writes as syntax."""
    for output in tree.find_all(nodes.Output):
        output.nodes = [
            each if isinstance(each, nodes.TemplateData) or _is_syntax(each) else _placed(each)
            for each in output.nodes
        ]


def _is_syntax(node: nodes.Expr) -> bool:
    """Tell whether it writes commas, colons and brackets only: `{{ "," if not loop.last }}`."""
    if isinstance(node, nodes.CondExpr):
        return _is_syntax(node.expr1) and (node.expr2 is None or _is_syntax(node.expr2))
    return (
        isinstance(node, nodes.Const) and isinstance(node.value, str) and bool(_SYNTAX.fullmatch(node.value))
    )


def _placed(node: nodes.Expr) -> nodes.Filter:
    name = node if isinstance(node, nodes.Name) else node.find(nodes.Name)
    where = [nodes.Const(node.lineno), nodes.Const(name.name if name else "...")]
    return nodes.Filter(node, _PLACE, where, [], None, None, lineno=node.lineno)


def _optional(tree: nodes.Template) -> Iterator[tuple[str, Any]]:
    """Yield the variables that may be left out, with their defaults as far as these are written out."""
    for each in tree.find_all((nodes.Filter, nodes.Test)):
        if not isinstance(each.node, nodes.Name):
            continue
        if isinstance(each, nodes.Filter) and each.name in _WITH_DEFAULT:
            given = each.args[0] if each.args else None
            try:
                yield each.node.name, given.as_const() if given else None
            except nodes.Impossible:
                yield each.node.name, None
        elif isinstance(each, nodes.Test) and each.name in ("defined", "undefined"):
            yield each.node.name, None


def _with_filters(problem: str) -> str:
    if not problem.startswith("No filter named"):
        return problem
    return f"{problem.rstrip('.')} is read here. There are {', '.join(FILTERS)}, indent, tojson"


def _line(error: BaseException) -> str:
    """Return where in the template an error was raised: Jinja writes its lines into the traceback."""
    at, found = error.__traceback__, None
    while at is not None:
        if at.tb_frame.f_code.co_filename == "<template>":
            found = at.tb_lineno
        at = at.tb_next
    return f", line {found}" if found else ""
