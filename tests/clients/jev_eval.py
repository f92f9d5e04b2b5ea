"""The command line of `jev-eval`, as installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIMIT_S = 60


def jev_eval(url: str, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run it in a folder, against a server."""
    return subprocess.run(
        [Path(sys.executable).with_name("jev-eval"), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "JEV_API_KEY": "any", "TYPESAFE_AI_BASE_URL": f"{url}/v1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
