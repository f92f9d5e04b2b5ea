"""A project of the stub `gcloud`, and our commands run against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOOKS = frozenset({"describe", "list", "get-iam-policy", "print-identity-token"})


class Cloud:
    """The stub's state, and the commands of one package of ours run against it."""

    def __init__(self, folder: Path, package: str, environ: dict[str, str], **state: Any) -> None:
        self.file = folder / "state.json"
        self._package = package
        self._environ = environ
        self._folder = folder / "bin"
        self._folder.mkdir()
        script = self._folder / "gcloud"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.deploy.stub_gcloud "$@"\n')
        script.chmod(0o755)
        self.be(**state)

    def be(self, **changes: Any) -> None:
        """Change the state."""
        state = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.file.write_text(json.dumps(state | changes))

    @property
    def state(self) -> dict[str, Any]:
        """What the stub keeps."""
        said: dict[str, Any] = json.loads(self.file.read_text())
        return said

    @property
    def calls(self) -> list[list[str]]:
        """The commands that change something."""
        calls: list[list[str]] = self.state.get("calls", [])
        return [call for call in calls if not LOOKS.intersection(call)]

    @property
    def changes(self) -> list[str]:
        """The same, by their first three words, without flags."""
        return [" ".join([word for word in call if not word.startswith("--")][:3]) for call in self.calls]

    def run(self, command: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours."""
        path = f"{self._folder}:{os.environ['PATH']}"
        stub = {"PATH": path, "PYTHONPATH": str(ROOT), "STUB_GCLOUD": str(self.file), "PROJECT": "p"}
        return subprocess.run(
            [sys.executable, "-m", self._package, command, *arguments],
            env={**os.environ, **stub, **self._environ, **variables},
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
        )
