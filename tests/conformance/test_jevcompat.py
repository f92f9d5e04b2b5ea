"""The verdict of jevcompat, which judges servers of this kind by a specification of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conformance.target import MODEL, TIMEOUT, Target

# What cannot be asked of a server without keys, and of one with them.
NEEDS_KEYS = {"auth.bearer", "auth.missing", "auth.invalid"}
NEEDS_NONE = {"auth.ignored-when-off"}


def test_it_finds_every_must_and_should_fulfilled(target: Target, tmp_path: Path) -> None:
    told = tmp_path / "report.json"
    command = [sys.executable, "-m", "jevcompat.cli", "test", target.url, "--json", str(told)]
    options = ["--model", MODEL, "--timeout", str(TIMEOUT), "--key-env", "JEVCOMPAT_KEY"]
    # A key on the command line would be there for everyone on the machine to read.
    key = {"JEVCOMPAT_KEY": target.key or ""}
    done = subprocess.run([*command, *options], env={**os.environ, **key}, capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout + done.stderr

    report = json.loads(told.read_text())
    assert "conformant" == report["summary"]["verdict"]
    assert (None, [], []) == (report["aborted"], report["case_errors"], report["inconclusive"])
    otherwise = {each["id"]: each["status"] for each in report["results"] if each["status"] != "pass"}
    not_asked = NEEDS_NONE if target.key else NEEDS_KEYS
    assert dict.fromkeys(not_asked, "skip") == otherwise
