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
    """Return what a file holds.

    Raises:
        Refused: it cannot be read, or is neither JSON nor YAML.
    """
    import yaml

    text = read_file(file)
    try:
        return yaml.safe_load(text)
    except Exception as error:  # PyYAML lets through what dates, numbers and tags that are none raise
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Refused(f"{file} is neither JSON nor YAML{where}.", BAD_INPUT) from None
