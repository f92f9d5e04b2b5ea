"""`python -m deploy.check.units`: the systemd units for Compute Engine, filled in, held against systemd.

They are verified in a root of their own, in which the programs that they start exist.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.gce.machine import EXAMPLE, Target
from deploy.gce.user_data import units

SYSTEM = Path("/lib/systemd/system")
_COMMAND = re.compile(r"^Exec\w+=-?(/\S+)", re.MULTILINE)


def problems(target: Target = EXAMPLE) -> str:
    """Return what systemd finds wrong with the units, "" for nothing."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        place = root / "etc/systemd/system"
        place.mkdir(parents=True)
        shutil.copytree(SYSTEM, root / SYSTEM.relative_to("/"), symlinks=True)
        (place / "docker.service").write_text("[Service]\nExecStart=/usr/bin/docker\n")
        texts = units(target)
        for name, text in texts.items():
            (place / name).write_text(text)
            for command in [*_COMMAND.findall(text), "/usr/bin/docker"]:
                program = root / command.lstrip("/")
                program.parent.mkdir(parents=True, exist_ok=True)
                program.touch(mode=0o755)
        done = subprocess.run(  # noqa: S603  names of our own files
            ["systemd-analyze", f"--root={root}", "verify", *texts],  # noqa: S607  wherever it is
            capture_output=True,
            text=True,
        )
        return done.stderr.replace(str(root), "") if done.returncode or done.stderr else ""


def main() -> int:
    """Print what is wrong."""
    if shutil.which("systemd-analyze") is None:
        sys.stderr.write("systemd units: not verified, there is no systemd-analyze here\n")
        return 0
    said = problems()
    sys.stderr.write(said)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
