"""Holds systemd units against `systemd-analyze verify`, in a root where every program of theirs is there.

python -m deploy.check.units deploy/gce/structured-server.service ...
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

UNPACKED = Path(".cache/systemd")
"""Where `make systemd` unpacks it on machines that have none."""
_PROGRAM = re.compile(r"^Exec\w+=[-@:+!]*(/\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Analyzer:
    """A `systemd-analyze` that runs here."""

    program: str
    environment: Mapping[str, str]

    def said(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it."""
        environment = {**os.environ, **self.environment}
        command = [self.program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)  # noqa: S603


def analyzer(unpacked: Path = UNPACKED) -> Analyzer | None:
    """Return the machine's own, or the one that was unpacked; None where neither runs."""
    if own := shutil.which("systemd-analyze"):
        return Analyzer(own, {})
    # Unpacked only, it does not find its libraries by itself.
    libraries = [*unpacked.glob("usr/lib/*/systemd"), *unpacked.glob("usr/lib/*"), *unpacked.glob("lib/*")]
    path = ":".join(str(each.resolve()) for each in libraries)
    fetched = unpacked.resolve() / "usr/bin/systemd-analyze"
    found = Analyzer(str(fetched), {"LD_LIBRARY_PATH": path})
    return found if fetched.exists() and found.said("--version").returncode == 0 else None


def problems(analyze: Analyzer, units: Iterable[tuple[str, str]]) -> Sequence[str]:
    """Return what is wrong with units, given as names and texts."""
    with TemporaryDirectory() as root:
        folder = Path(root, "etc/systemd/system")
        folder.mkdir(parents=True)
        names = []
        for name, text in units:
            (folder / name).write_text(text, encoding="utf-8")
            names.append(name)
            for path in _PROGRAM.findall(text):
                stand_in = Path(root, path.lstrip("/"))
                stand_in.parent.mkdir(parents=True, exist_ok=True)
                stand_in.write_text("#!/bin/sh\n")
                stand_in.chmod(0o755)
        # Other units, docker's for one, are not in the root: their absence is no error of these.
        done = analyze.said("verify", "--man=no", "--recursive-errors=no", f"--root={root}", *names)
        said = done.stderr.replace(f"{root}/etc/systemd/system/", "").strip().splitlines()
        return said or ([f"systemd-analyze ended with {done.returncode}"] if done.returncode else [])


def main() -> None:
    """Check the files that are named. Exit code 1 if one is wrong."""
    analyze = analyzer()
    if analyze is None:
        print("no systemd-analyze here: units are not checked (`make systemd` fetches it)")  # noqa: T201
        return
    files = [Path(name) for name in sys.argv[1:]]
    found = problems(analyze, [(file.name, file.read_text(encoding="utf-8")) for file in files])
    for line in found:
        print(line)  # noqa: T201  a checker says what it finds
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
