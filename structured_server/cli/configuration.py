"""Settings of the client's commands from files: the project's, then the user's. Flags and environment win."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structured_server.cli.durations import seconds_of
from structured_server.cli.exits import BAD_INPUT, Refused
from structured_server.cli.yaml_file import read_yaml

PROJECT_FILES = (".structured-server.yaml", ".dgem.yaml")
"""Looked for in the working folder and in those above it; the first of a folder counts."""

USER_FILES = ("structured-server/config.yaml", "dgem/config.yaml")
"""In the user's folder for settings, ~/.config where no other is set."""

COMMANDS = ("decide", "ask", "batch", "ping", "models", "proxy", "config", "log")
"""Those that heed the files."""

SUBCOMMANDS = ("replay", "show")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting from a file."""

    value: Any
    file: Path


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("must be text")
    return value


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be true or false")
    return value


KNOWN: Mapping[str, Callable[[Any], Any]] = {
    "url": _text,
    "model": _text,
    "timeout": seconds_of,
    "stats": _switch,
    "token": _text,
    "gcp_auth": _switch,
    "audience": _text,
    "impersonate": _text,
}
"""The names that a file may hold, and what makes values of what it says."""


def settings_of(folder: Path, home: Path, environ: Mapping[str, str]) -> dict[str, Setting]:
    """Return the settings that files give, a project's before a user's.

    Raises:
        Refused: a file cannot be read, or holds what is no setting.
    """
    found: dict[str, Setting] = {}
    for file in files_of(folder, home, environ):
        for name, value in read_settings(file).items():
            found.setdefault(name, Setting(value, file))
    return found


def files_of(folder: Path, home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that there are: the nearest project's, then the user's."""
    here = next((file for each in (folder, *folder.parents) for file in _first(each, PROJECT_FILES)), None)
    if here is not None:
        yield here
    configured = environ.get("XDG_CONFIG_HOME", "")
    yield from _first(Path(configured) if configured else home / ".config", USER_FILES)


def _first(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    yield from [folder / name for name in names if (folder / name).is_file()][:1]


def read_settings(file: Path) -> dict[str, Any]:
    """Return what a file says.

    Raises:
        Refused: it cannot be read, or holds what is no setting.
    """
    said = read_yaml(file)
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise Refused(f"{file} must hold settings by name, such as `url: https://host`.", BAD_INPUT)
    return {_name(file, name): _value(file, str(name), value) for name, value in said.items()}


def _name(file: Path, given: Any) -> str:
    name = str(given).replace("-", "_")
    if name in KNOWN:
        return name
    near = difflib.get_close_matches(name, KNOWN, 1)
    meant = f" Did you mean {near[0]}?" if near else f" There are {', '.join(KNOWN)}."
    raise Refused(f"{file}: {given} is no setting.{meant}", BAD_INPUT)


def _value(file: Path, given: str, value: Any) -> Any:
    try:
        return KNOWN[given.replace("-", "_")](value)
    except (TypeError, ValueError) as error:
        raise Refused(f"{file}: {given} {error}.", BAD_INPUT) from None


class FileDefaults(dict[str, Any]):
    """The settings of files as click's defaults, the same for every command that heeds them."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        super().__init__({name: setting.value for name, setting in settings.items()})

    def get(self, name: str, default: Any = None) -> Any:
        """Return a command's defaults, which are the same for all, or else a value."""
        return self if name in (*COMMANDS, *SUBCOMMANDS) else super().get(name, default)
