"""The programs that docs/clients.md shows, by the name in their first line."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
PROGRAMS = {
    match["name"]: match["text"]
    for match in re.finditer(
        r"^```(?:python|js)\n(?P<text>(?:#|//) (?P<name>\S+)\n.*?)^```$",
        PAGE.read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
}


def write(folder: Path) -> None:
    """Write the documented programs into a folder, where they find each other."""
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text, "utf-8")
