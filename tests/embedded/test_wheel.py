"""The built wheel: small, with one model in it, and whole: the demo runs from it alone, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGEST = 20_000_000  # bytes
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built anew."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=300)
    (found,) = folder.glob("*.whl")
    return found


def test_it_is_small_and_holds_one_model_with_the_incidents(wheel: Path) -> None:
    assert LARGEST > wheel.stat().st_size
    names = zipfile.ZipFile(wheel).namelist()
    assert ["structured_server/data/triage/model.onnx"] == [name for name in names if name.endswith(".onnx")]
    for name in ("triage/model.json", "triage/tokenizer.json", "incident_triage/incidents.yaml"):
        assert f"structured_server/data/{name}" in names
    assert not [name for name in names if name.startswith(("tests", "examples", "models"))]


def test_the_demo_runs_from_an_empty_environment_without_a_network(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are borrowed from here; the project itself is only in the wheel."""
    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=300)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ |= {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "ALL_PROXY": NOWHERE}
    where = [str(python), "-c", "import structured_server; print(structured_server.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, cwd=tmp_path, env=environ, check=True)
    assert str(packages) in found.stdout
    command = [str(home / "bin" / "structured-server"), "demo", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    assert "Clear incidents: " in done.stdout
