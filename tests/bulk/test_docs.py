"""What docs/bulk.md shows works as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from structured_server.bulk.flat import columns_of
from structured_server.cli.main import cli
from tests.bulk.labelling import ROOT, manifest_of, read_csv

PAGE = (ROOT / "docs" / "bulk.md").read_text("utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def run(block: str, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run a block as a reader would, in a shell that stops at the first failure."""
    environ = {"STRUCTURED_SERVER_URL": url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["/bin/bash", "-e", "-c", block],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_commands_of_the_page_do_what_it_says(embedded_url: str, tmp_path: Path) -> None:
    first, again, estimate, gold = BLOCKS
    made = run(first, tmp_path, embedded_url)
    assert 0 == made.returncode, made.stderr
    out = tmp_path / "labelled.csv"
    assert ["T-1", "T-2", "T-3"] == [row["id"] for row in read_csv(out)]
    before = out.read_bytes()
    second = run(again, tmp_path, "http://127.0.0.1:9")
    assert (0, True) == (second.returncode, "Nothing is left to do." in second.stderr)
    assert before == out.read_bytes()
    taken = run(estimate, tmp_path, embedded_url)
    assert "Cost at 0.75 an hour" in taken.stdout, taken.stderr
    judged = run(gold, tmp_path, embedded_url)
    assert 0 == judged.returncode, judged.stderr
    table, _, summary = judged.stdout.partition("\n{")
    assert " of 3 right, accuracy" in table
    assert 3 == json.loads("{" + summary)["questions"]["team"]["gold"]["n"]


def test_every_column_and_file_is_on_the_page(embedded_url: str, tmp_path: Path) -> None:
    assert 0 == run(BLOCKS[0], tmp_path, embedded_url).returncode
    added = columns_of({"team": {"type": "score"}}, "")
    assert set(added) == {name for name in re.findall(r"`([\w.]+)`", PAGE) if name in added}
    assert all(f"`{each.name}`" in PAGE for each in tmp_path.glob("labelled*"))
    assert {"settings", "fingerprints", "mixed"} <= set(manifest_of(tmp_path / "labelled.csv"))


def test_every_option_of_the_page_is_one_of_the_command() -> None:
    known = CliRunner().invoke(cli, ["batch", "--help"]).output
    for option in set(re.findall(r"(--[a-z][a-z-]+)", PAGE)) - {"--rows"}:
        assert option in known, option
