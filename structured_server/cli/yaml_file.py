"""YAML files, of which JSON files are some, as people give them to commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from structured_server.cli.exits import BAD_INPUT, Refused


def read_file(file: Path) -> str:
    """Return a file's text.

    Raises:
        Refused: it cannot be read, or is no text.
    """
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}.", BAD_INPUT) from None
    except UnicodeDecodeError:
        raise Refused(f"{file} is not UTF-8 text.", BAD_INPUT) from None


def read_yaml(file: Path) -> Any:
    """Return what a file holds, .json as JSON. As in templates, YAML is that of 1.2: the key `yes` is text.

    Raises:
        Refused: it cannot be read, is neither JSON nor YAML, or holds what JSON could not say.
    """
    from structured_server.templates import reading

    text = read_file(file)
    try:
        return reading.read_json(text) if file.suffix == ".json" else reading.read_yaml(text)
    except reading.Malformed as error:
        where = f", line {error.line}" if error.line else ""
        raise Refused(f"{file}{where} is neither JSON nor YAML: {error.problem}.", BAD_INPUT) from None
