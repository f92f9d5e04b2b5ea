"""JSON and YAML as templates hold them: what comes out is what JSON could say, and nothing is guessed.

YAML is that of the core schema of YAML 1.2: `yes`, `12:30` and `2026-11-30` are text, `1e3` is a number, and
keys are the text that they are written as.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NoReturn

import yaml

from structured_server.templates.page import BARE, BEGIN, END

Kind = Literal["json", "yaml"]
MOST_VALUES = 100_000  # YAML's references can make a few lines into more than any memory holds
_STRING_OR_MARK = re.compile(rf'("(?:[^"\\]|\\.)*")|{BEGIN}([0-9]+{END})', re.DOTALL)


class Malformed(Exception):
    """It is neither JSON nor YAML; the line counts from 1, None where it is not known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


@lru_cache(maxsize=8)
def read(kind: Kind, text: str) -> Any:
    """Return what a text holds; marks outside of quotes are strings that begin with `BARE`.

    The same text gives the same objects: they are not to be changed.

    Raises:
        Malformed: it is no JSON or no YAML.
    """
    if kind == "yaml":
        return _yaml(text, _Marked)
    return read_json(_STRING_OR_MARK.sub(lambda found: found[1] or f'"{BARE}{found[2]}"', text))


def read_yaml(text: str) -> Any:
    """Return what YAML holds.

    Raises:
        Malformed: it is none, or more than JSON could say.
    """
    return _yaml(text, _Loader)


def read_json(text: str) -> Any:
    """Return what JSON holds.

    Raises:
        Malformed: it is none.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except RecursionError:
        raise Malformed("it is nested too deep") from None
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, error.lineno) from None
    except ValueError as error:
        raise Malformed(str(error)) from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Malformed(f"the key {key!r} stands twice in an object")
        found[key] = value
    return found


def _no_number(word: str) -> NoReturn:
    raise Malformed(f"{word} is no number of JSON")


def _yaml(text: str, loader: type[_Loader]) -> Any:
    try:
        found = yaml.load(text, loader)  # noqa: S506  a SafeLoader
    except RecursionError:
        raise Malformed("it is nested too deep") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Malformed(error.problem or str(error.context), mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        raise Malformed(f"the character U+{error.character:04X} may not stand in it") from None
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # of tags that are none
        raise Malformed(str(error)) from None
    waiting, seen = [found], 0
    while waiting:
        each = waiting.pop()
        seen += 1
        if seen > MOST_VALUES:
            raise Malformed(f"it has more than {MOST_VALUES} values")
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        elif not (each is None or isinstance(each, str | int | float)):
            raise Malformed(f"JSON has no word for its {type(each).__name__}")
    return found


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  as its parent

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = True) -> dict[Any, Any]:  # noqa: ARG002
        """Return an object: keys are text as it is written, and each stands once."""
        own = {id(key) for key, _ in node.value}
        self.flatten_mapping(node)
        found: dict[str, Any] = {}
        given: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
            if key.value in given and id(key) in own:
                problem = f"the key {key.value!r} stands twice in an object"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if id(key) in own:
                given.add(key.value)
            found[key.value] = self.construct_object(value, deep=True)
        return found


def _integer(_: _Loader, node: yaml.ScalarNode) -> int:
    return int(node.value)


def _float(_: _Loader, node: yaml.ScalarNode) -> float:
    if "n" in node.value.lower():
        raise yaml.constructor.ConstructorError(
            None, None, f"{node.value} is no number of JSON", node.start_mark
        )
    return float(node.value)


def _bare(_: _Loader, node: yaml.ScalarNode) -> str:
    return BARE + str(node.value)[1:]


_TAG = "tag:yaml.org,2002:"
for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
    ("merge", "<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), _first)
_Loader.add_constructor(f"{_TAG}int", _integer)
_Loader.add_constructor(f"{_TAG}float", _float)


class _Marked(_Loader):
    """Tells marks that stand alone outside of quotes."""


_Marked.add_implicit_resolver(f"{_TAG}mark", re.compile(f"{BEGIN}[0-9]+{END}$"), [BEGIN])
_Marked.add_constructor(f"{_TAG}mark", _bare)
