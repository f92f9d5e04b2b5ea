"""A template: a file that, with its variables filled in, is what `POST /decide` is asked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from structured_server.templates.errors import TemplateError
from structured_server.templates.filling import Misplaced, filled
from structured_server.templates.go import GoText, is_go
from structured_server.templates.jinja import JinjaText
from structured_server.templates.page import BARE, BEGIN, END, LONGEST, Page, TooLong
from structured_server.templates.reading import Kind, Malformed, read

_SUFFIXES: Mapping[str, Kind] = {
    ".json.tmpl": "json",
    ".yaml.tmpl": "yaml",
    ".yml.tmpl": "yaml",
}
_HEADER = re.compile(r"\s*\{#-?(.*?)-?#\}|\s*\{\{-?\s*/\*(.*?)\*/\s*-?\}\}", re.DOTALL)
_DESCRIBED = re.compile(r'\s*([A-Za-z_]\w*):\s+(.+?)(?:\s*\(such as "(.*)"\))?\s*')


class _Text(Protocol):
    names: frozenset[str]

    @property
    def defaults(self) -> Mapping[str, Any]:
        """What may be left out, with its default as far as that is written out."""
        ...

    def write(self, page: Page, variables: Mapping[str, Any]) -> None:
        """Write the text, with marks for the variables."""
        ...


@dataclass(frozen=True, slots=True)
class Variable:
    """What a template wants to be given."""

    name: str
    required: bool
    description: str = ""
    default: Any = None
    """What the template itself takes where it is not given, as far as that is written out."""
    example: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A template that was read."""

    name: str
    source: str
    kind: Kind
    description: str
    variables: tuple[Variable, ...]
    text: _Text

    @property
    def example(self) -> dict[str, str]:
        """The variables' examples, by name."""
        return {each.name: each.example for each in self.variables if each.example is not None}

    def render(self, given: Mapping[str, Any], *, more_allowed: bool = False) -> dict[str, Any]:
        """Return the request's body. Only what the template uses may be given, unless `more_allowed`.

        Raises:
            TemplateError: variables are missing or unknown, or what comes out is no request.
        """
        self._check(given, more_allowed)
        names = {variable.name for variable in self.variables}
        page = Page()
        try:
            self.text.write(page, {name: value for name, value in given.items() if name in names})
        except TooLong:
            raise TemplateError(f"{self.name} comes to more than {LONGEST} characters.") from None
        return self._body(page)

    def _check(self, given: Mapping[str, Any], more_allowed: bool) -> None:
        known = [variable.name for variable in self.variables]
        missing = [each.name for each in self.variables if each.required and each.name not in given]
        if missing:
            have = ", ".join(given) or "none"
            raise TemplateError(
                f"{self.name} needs {', '.join(missing)}; given: {have}. Give text as -v {missing[0]}=TEXT."
            )
        for name in () if more_allowed else given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                meant = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}."
                raise TemplateError(f"{self.name} has no variable {name}: {meant}")

    def _body(self, page: Page) -> dict[str, Any]:
        try:
            found = filled(read(self.kind, page.text), page.values, text_is_bare=self.kind == "yaml")
        except Malformed as error:
            raise self._broken(page, error) from None
        except Misplaced as error:
            where = f"{self.name}, line {error.placed.line}"
            raise TemplateError(f"{where}: {error.placed.name} {error.problem}.") from None
        if isinstance(found, dict):
            if isinstance(found.get("questions"), dict) and found["questions"]:
                return found
            if "questions" not in found and found and all(isinstance(each, dict) for each in found.values()):
                return {"questions": found}
        has = f"; it has {', '.join(found) or 'nothing'}" if isinstance(found, dict) else ""
        raise TemplateError(
            f"{self.name} must come to an object with `questions`, or to questions by id{has}."
        )

    def _broken(self, page: Page, error: Malformed) -> TemplateError:
        said = f"{self.name} comes to no {self.kind.upper()}: {error.problem}"
        if error.line is None:
            return TemplateError(f"{said}.")
        lines = page.text.split("\n")
        shown = page.shown(lines[min(error.line, len(lines)) - 1]).strip()[:120]
        return TemplateError(f"{said}, in line {error.line} of what it comes to: {shown}")


def load(source: str | Path) -> Template:
    """Return a template: a file's, or the packaged one of that name.

    Raises:
        TemplateError: there is none, or it cannot be read.
    """
    path = Path(source)
    if not path.name.endswith(".tmpl"):
        return _packaged(str(source))
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        name = path.name.partition(".")[0]
        twin = any(each.name == name for each in packaged())
        hint = (
            f" There is a packaged one: say {name}, or write it there with "
            f"`structured-server template new {path} --from {name}`."
        )
        raise TemplateError(f"cannot read {path}: {error.strerror}.{hint if twin else ''}") from None
    except UnicodeDecodeError:
        raise TemplateError(f"{path} is not UTF-8 text.") from None
    return parse(str(path), path.name, text)


def parse(name: str, file_name: str, text: str) -> Template:
    """Return the template that a text is.

    Raises:
        TemplateError: it is none.
    """
    kind = next((kind for suffix, kind in _SUFFIXES.items() if file_name.endswith(suffix)), None)
    if kind is None:
        raise TemplateError(f"{name} must be called *.json.tmpl or *.yaml.tmpl.")
    if set(text) & {BEGIN, BARE, END}:
        raise TemplateError(f"{name}: the characters U+E000 to U+E002 mean nothing, and are not read here.")
    read: _Text = GoText(name, text) if is_go(text) else JinjaText(name, text)
    description, described = _header(text, read.names)
    variables = tuple(
        Variable(each, each not in read.defaults, says, read.defaults.get(each), example)
        for each, (says, example) in described.items()
    )
    return Template(name, text, kind, description, variables, read)


def packaged() -> list[Template]:
    """Return the templates of this package."""
    folder = files("structured_server.templates") / "packaged"
    found = sorted(
        (each for each in folder.iterdir() if each.name.endswith(".tmpl")), key=lambda each: each.name
    )
    return [parse(each.name.partition(".")[0], each.name, each.read_text("utf-8")) for each in found]


def _packaged(name: str) -> Template:
    known = {each.name: each for each in packaged()}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    raise TemplateError(
        f"{name} is no file *.json.tmpl or *.yaml.tmpl, and no packaged template: {', '.join(known)}.{meant}"
    )


def _header(text: str, names: Collection[str]) -> tuple[str, dict[str, tuple[str, str | None]]]:
    """Return what the comment at the top says of the template, and of all variables, those it names first."""
    found = _HEADER.match(text)
    said, described = [], {}
    for line in (found[1] or found[2] or "").strip().splitlines() if found else []:
        if (of := _DESCRIBED.fullmatch(line)) and of[1] in names:
            described[of[1]] = (of[2], of[3])
        elif line.strip():
            said.append(line.strip())
    return " ".join(said), {**described, **dict.fromkeys(sorted({*names} - {*described}), ("", None))}
