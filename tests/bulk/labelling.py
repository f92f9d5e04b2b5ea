"""Files to label, the command that does it, and what it wrote."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from structured_server.cli.main import cli

ROOT = Path(__file__).parents[2]
INCIDENTS = yaml.safe_load((ROOT / "examples" / "incident_triage" / "incidents.yaml").read_text("utf-8"))
QUESTIONS: dict[str, Any] = yaml.safe_load(
    (ROOT / "examples" / "incident_triage" / "questions.yaml").read_text("utf-8")
)


def batch(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, ["batch", *map(str, arguments)])


def start_batch(*arguments: object) -> subprocess.Popen[str]:
    """Start the command as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "structured_server", "batch", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
    )


def incidents(count: int) -> list[dict[str, str]]:
    """Return rows that all differ: an id, a text and the team, where the text is clear."""
    return [
        {
            "id": f"INC-{number}",
            "text": f"{INCIDENTS[number % len(INCIDENTS)]['title']}, report {number}",
            "owner": INCIDENTS[number % len(INCIDENTS)].get("expected", {}).get("team", ""),
        }
        for number in range(count)
    ]


def write_csv(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    """Write a table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def manifest_of(output: Path) -> dict[str, Any]:
    """Return the manifest beside an output."""
    found: dict[str, Any] = json.loads(output.with_name(output.name + ".manifest.json").read_text("utf-8"))
    return found
