"""What runs on the VM: its scripts, as they are, against a metadata server and a secret store of our own."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deploy.check.units import analyzer, problems
from deploy.gce.machine import DRAIN_S, FOLDER, PROXY_STOP_S, UNIT, metadata
from deploy.gce.target import Target
from tests.deploy.local import listening

REGISTRY = "europe-west4-docker.pkg.dev"
TARGET = Target(
    project="p",
    zone="europe-west4-a",
    image=f"{REGISTRY}/p/images/structured-server:gpu",
    hf_secret="hf",  # noqa: S106  a name
    keys_secret="keys",  # noqa: S106  likewise
    engine_args="--kv-cache-dtype fp8 --seed 1",
)
TOKEN = "ya29.access-token-marker"  # noqa: S105  a marker
HELD = {"hf": "hf_secret_marker", "keys": 'keys:\n  - name: "triage"\n'}
UNIT_TEXT = (FOLDER / UNIT).read_text()


class Google(BaseHTTPRequestHandler):
    """The metadata server and Secret Manager."""

    secrets: ClassVar[dict[str, str]] = HELD

    def do_GET(self) -> None:
        metadata_path, secret_path = "/computeMetadata/v1/instance/", "/v1/projects/p/secrets/"
        ours = self.headers.get("Metadata-Flavor") == "Google"
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if ours and self.path == f"{metadata_path}service-accounts/default/token":
            self._say(json.dumps({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"}))
        elif ours and self.path.startswith(f"{metadata_path}attributes/"):
            self._say(metadata(TARGET)[self.path.rpartition("/")[2]])
        elif allowed and self.path.startswith(secret_path):
            name, _, version = self.path.removeprefix(secret_path).partition("/")
            held = self.secrets.get(name)
            if held is None or version != "versions/latest:access":
                self._say("{}", 404)
            else:
                data = {"data": base64.b64encode(held.encode()).decode(), "dataCrc32c": "1"}
                self._say(json.dumps({"name": name, "payload": data}, indent=2))
        else:
            self._say("{}", 403)

    def _say(self, body: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def google() -> Iterator[str]:
    """Serve both, and give their host and port."""
    Google.secrets = HELD
    with listening(Google) as place:
        yield place


class Machine:
    """A folder in place of `/`, with programs that write down how they are called."""

    def __init__(self, root: Path, google: str) -> None:
        self.root, self.google = root, google
        self.bin, self.record = root / "bin", root / "record"
        for name in ("bin", "run", "state"):
            (root / name).mkdir()
        self.record.touch()
        for name in ("docker", "nvidia-smi", "iptables", "systemctl"):
            self.program(name, 'case "$*" in *login*) cat >>"$RECORD.stdin" ;; *--check*) exit 1 ;; esac')
        self.program("curl", f'exec {shutil.which("curl")} "$@"')

    def program(self, name: str, then: str) -> None:
        """Put a program there."""
        file = self.bin / name
        file.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>"$RECORD"\n{then}\n')
        file.chmod(0o755)

    def run(self, script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script as the machine would."""
        environ = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "RECORD": str(self.record),
            "GCE_METADATA_HOST": self.google,
            "SECRETS_URL": f"http://{self.google}/v1",
            "ROOT": str(self.root),
            "RUNTIME_DIRECTORY": str(self.root / "run"),
            "STATE_DIRECTORY": str(self.root / "state"),
            "CONTAINER_USER": str(os.getuid()),
            **variables,
        }
        return subprocess.run([script], env=environ, capture_output=True, text=True, timeout=60)

    def prepare(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run what runs before the container, with the settings that the metadata have."""
        lines = metadata(TARGET)["structured-server-machine"].splitlines()
        settings = dict(line.split("=", 1) for line in lines)
        return self.run(FOLDER / "prepare.sh", **settings | variables)

    @property
    def called(self) -> list[str]:
        """The commands, one a line."""
        return self.record.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, google: str) -> Machine:
    """A machine that has everything."""
    return Machine(tmp_path, google)


def test_the_startup_script_installs_what_the_metadata_say_and_starts_it(machine: Machine) -> None:
    done = machine.run(FOLDER / "startup.sh")
    assert 0 == done.returncode, done.stderr
    assert UNIT_TEXT == (machine.root / "etc/systemd/system" / UNIT).read_text()
    program = machine.root / "usr/local/lib/structured-server/prepare.sh"
    assert (FOLDER / "prepare.sh").read_text() == program.read_text()
    assert os.access(program, os.X_OK)
    told = (machine.root / "etc/structured-server/container.env").read_text()
    assert "ENGINE_ARGS=--kv-cache-dtype fp8 --seed 1\n" in told
    assert "HF_TOKEN_PATH=/run/secrets/hf-token\n" in told
    assert "systemctl restart --no-block structured-server.service" == machine.called[-1]


def test_secrets_come_to_files_in_memory_that_one_user_may_read(machine: Machine) -> None:
    done = machine.prepare()
    assert 0 == done.returncode, done.stderr
    folder = machine.root / "run" / "secrets"
    assert HELD == {"hf": (folder / "hf-token").read_text(), "keys": (folder / "keys.yaml").read_text()}
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.iterdir())}
    assert {"secrets": 0o700, "hf-token": 0o600, "keys.yaml": 0o600} == modes


def test_no_secret_stands_on_a_command_line_or_is_printed(machine: Machine) -> None:
    done = machine.prepare()
    shown = done.stdout + done.stderr + machine.record.read_text()
    for secret in (TOKEN, *HELD.values()):
        assert secret not in shown
    assert TOKEN == Path(f"{machine.record}.stdin").read_text(), "the registry's login has it by a pipe"
    assert not (machine.root / "run" / "docker").exists()


def test_the_container_cannot_ask_for_the_accounts_token(machine: Machine) -> None:
    machine.prepare()
    (rule,) = [call for call in machine.called if "--insert" in call]
    assert "--insert DOCKER-USER --destination 169.254.169.254" in rule
    assert rule.endswith("--jump DROP")


def test_the_image_is_pulled_with_a_login_at_googles_registry_alone(machine: Machine) -> None:
    machine.prepare()
    assert any(f"login --username oauth2accesstoken --password-stdin https://{REGISTRY}" in call
               for call in machine.called)  # fmt: skip
    machine.record.write_text("")
    machine.prepare(IMAGE="docker.io/me/structured-server:gpu")
    assert any("pull --quiet docker.io/me/structured-server:gpu" in call for call in machine.called)
    assert not any("login" in call for call in machine.called)


def test_an_image_that_is_there_will_do_when_the_registry_does_not_answer(machine: Machine) -> None:
    machine.program("docker", 'case "$*" in *pull*) exit 1 ;; *login*) cat >/dev/null ;; esac')
    done = machine.prepare()
    assert 0 == done.returncode, done.stderr
    assert "the one that is here is used" in done.stderr
    machine.program("docker", 'case "$*" in *pull*|*inspect*) exit 1 ;; *login*) cat >/dev/null ;; esac')
    done = machine.prepare()
    assert 1 == done.returncode
    assert "cannot be pulled" in done.stderr


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("driver", "the driver is not installed yet"),
        ("secret", "the secret hf cannot be read"),
        ("empty", "the secret hf is empty"),
        ("account", "gives no token for this machine's account"),
    ],
)
def test_what_is_missing_is_named_and_nothing_starts(machine: Machine, fault: str, said: str) -> None:
    if fault == "driver":
        machine.program("nvidia-smi", "exit 9")
    Google.secrets = {"secret": {}, "empty": {"hf": ""}}.get(fault, HELD)
    variables = {"GCE_METADATA_HOST": f"{machine.google}/nowhere"} if fault == "account" else {}
    done = machine.prepare(**variables)
    assert 1 == done.returncode
    assert said in done.stderr
    assert not any("pull" in call for call in machine.called)


def test_the_scripts_are_as_shellcheck_wants_them() -> None:
    program = Path(sys.prefix, "bin", "shellcheck")
    done = subprocess.run([program, *FOLDER.glob("*.sh")], capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout


# The unit


def setting(name: str) -> int:
    (found,) = re.findall(rf"^{name}=(\d+)$", UNIT_TEXT, re.MULTILINE)
    return int(found)


def test_the_unit_gives_the_entrypoint_time_to_drain() -> None:
    told = metadata(TARGET)["structured-server-container"]
    assert f"PROXY_STOP_S={PROXY_STOP_S}\n" in told
    (docker_s,) = re.findall(r"docker stop -t (\d+)", UNIT_TEXT)
    engine_s = 2  # the entrypoint's default
    assert DRAIN_S < PROXY_STOP_S < PROXY_STOP_S + engine_s + 1 < int(docker_s) < setting("TimeoutStopSec")


def test_the_unit_publishes_on_loopback_alone_and_gives_the_gpus() -> None:
    assert ["--publish=127.0.0.1:8080:8080"] == re.findall(r"(?:--publish|-p)[ =]\S+", UNIT_TEXT)[:1]
    assert 1 == UNIT_TEXT.count("--publish")
    assert "--gpus=all" in UNIT_TEXT
    assert "HF_TOKEN=" not in UNIT_TEXT


@pytest.mark.skipif(analyzer() is None, reason="no systemd-analyze: run `make systemd` on Debian")
def test_systemd_finds_nothing_wrong_with_the_unit_and_would() -> None:
    analyze = analyzer()
    assert analyze is not None
    assert [] == problems(analyze, [(UNIT, UNIT_TEXT)])
    for right, wrong in (("Type=exec", "Typ=exec"), ("Restart=always", "Restart=ever")):
        assert right in UNIT_TEXT
        assert problems(analyze, [(UNIT, UNIT_TEXT.replace(right, wrong))])
