"""Node with the JavaScript client, as `make javascript` installs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "javascript"
INSTALLED = Path(__file__).parents[2] / ".cache" / "javascript" / "node_modules"
LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Node:
    """Runs modules in a folder where the client can be imported."""

    folder: Path

    def run(self, script: str, **environ: str) -> Any:
        """Run one of our scripts, and return the JSON that it prints."""
        shutil.copy(HERE / script, self.folder)
        done = subprocess.run(
            ["node", script],  # noqa: S607 - whichever Node is installed
            cwd=self.folder,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert 0 == done.returncode, done.stderr
        return json.loads(done.stdout)


def require_node(folder: Path) -> Node:
    """Return Node; skip the test where it or the client is absent, fail it under CI=true."""
    if not (INSTALLED / "@typesafe-ai" / "sdk").exists() or shutil.which("node") is None:
        reason = "the JavaScript client is absent: make javascript"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    (folder / "node_modules").symlink_to(INSTALLED)
    return Node(folder)
