"""What a decision is asked with, from files, arguments and standard input."""

from __future__ import annotations

import base64
import json
import mimetypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from structured_server.cli.exits import BAD_INPUT, Refused
from structured_server.cli.yaml_file import read_file, read_yaml


def read_questions(file: Path) -> dict[str, Any]:
    """Read a file of questions: the map itself, or a request body without its state.

    Raises:
        Refused: it cannot be read, or holds something else.
    """
    found = read_yaml(file)
    if not isinstance(found, dict) or not found:
        raise Refused(f"{file} must hold questions by id, or an object with `questions`.", BAD_INPUT)
    return found if isinstance(found.get("questions"), dict) else {"questions": found}


def read_state(argument: str | None, file: Path | None, as_json: bool) -> Any:
    """Return the state: text, or what its JSON holds.

    Raises:
        Refused: there is none, more than one, or it cannot be read.
    """
    if (argument is None) == (file is None):
        raise Refused(
            "give the state once: as an argument, with --state-file, or as - for standard input.", BAD_INPUT
        )
    text = read_text(argument, file)
    as_json = as_json or (file is not None and file.suffix == ".json")
    if not as_json:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(f"the state is not JSON: {error}.", BAD_INPUT) from None


def read_text(argument: str | None, file: Path | None) -> str:
    """Return a file's text, else what the argument says, of which - is standard input.

    Raises:
        Refused: it cannot be read.
    """
    if file is None:
        assert argument is not None
        return sys.stdin.read() if argument == "-" else argument
    return read_file(file)


def samples_of(given: str | None) -> int | str | None:
    """Return what `--samples` says: a number, or a word for the server to judge."""
    return int(given) if given is not None and given.isdecimal() else given


def read_images(files: Sequence[Path]) -> list[str]:
    """Return images as data URLs.

    Raises:
        Refused: one cannot be read.
    """
    found = []
    for file in files:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise Refused(f"cannot read {file}: {error.strerror}.", BAD_INPUT) from None
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        found.append(f"data:{kind};base64,{base64.b64encode(data).decode()}")
    return found
