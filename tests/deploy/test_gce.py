"""The deployment to Compute Engine, against a `gcloud` that records; units, and the script for secrets."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from deploy.check import units as checked
from deploy.gce.machine import EXAMPLE, MACHINES
from deploy.gce.user_data import FOLDER, units, user_data
from tests.deploy.candidate import Candidate, candidate
from tests.deploy.cloud import Cloud

IMAGE = "europe-west4-docker.pkg.dev/p/i/s:gpu"
ACCESS_TOKEN, HUB_TOKEN = "ya29.access-marker", "hf_hub-marker"
KEYS = "keys:\n  - name: triage\n    sha256: 'keys-marker'\n"
SECRETS = {"HF_SECRET": "hf-token", "KEYS_SECRET": "server-keys"}


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    """A project without anything."""
    return Cloud(tmp_path, "deploy.gce", {"ZONE": "europe-west4-a", "IMAGE": IMAGE}, token="t")  # noqa: S106


def created(cloud: Cloud) -> list[str]:
    """Return the command that made the machine."""
    (call,) = [call for call in cloud.calls if call[:3] == ["compute", "instances", "create"]]
    return call


def there(precision: str = "4", *, image: str = IMAGE) -> dict[str, Any]:
    """Return the machine as it is after a deployment."""
    target = replace(
        EXAMPLE, project="p", image=image, machine=MACHINES[precision], hf_secret="", keys_secret=""
    )
    items = [{"key": "user-data", "value": user_data(target)}]
    return {"machineType": f"zones/z/machineTypes/{target.machine.kind}", "metadata": {"items": items}}


def test_without_yes_nothing_is_changed_and_everything_is_shown(cloud: Cloud) -> None:
    done = cloud.run("deploy")
    assert 0 == done.returncode, done.stderr
    assert [] == cloud.calls
    for shown in (
        "instances create",
        "firewall-rules create",
        "#cloud-config",
        "docker run",
        "--tunnel-through-iap",
    ):
        assert shown in done.stdout


@pytest.mark.parametrize(
    ("precision", "kind", "model", "gpus"),
    [
        ("4", "g2-standard-8", "cyankiwi/diffusiongemma-26B-A4B-it-AWQ-INT4", 1),
        ("8", "a2-highgpu-1g", "RedHatAI/diffusiongemma-26B-A4B-it-FP8-dynamic", 1),
        ("16", "a2-highgpu-2g", "google/diffusiongemma-26B-A4B-it", 2),
    ],
)
def test_a_precision_is_a_machine_and_a_model(
    cloud: Cloud, precision: str, kind: str, model: str, gpus: int
) -> None:
    done = cloud.run("deploy", "--yes", PRECISION=precision)
    assert 0 == done.returncode, done.stderr
    assert f"--machine-type={kind}" in created(cloud)
    said = user_data(replace(EXAMPLE, machine=MACHINES[precision]))
    files = {each["path"]: each["content"] for each in yaml.safe_load(said)["write_files"]}
    variables = files["/etc/structured-server/server.env"].splitlines()
    assert {f"ENGINE_MODEL={model}", f"ENGINE_TENSOR_PARALLEL={gpus}"} <= set(variables)
    run = files["/etc/systemd/system/structured-server.service"]
    assert gpus == len(re.findall(r"--device=/dev/nvidia\d", run))


def test_deploying_makes_an_account_a_way_in_and_the_machine(cloud: Cloud) -> None:
    done = cloud.run("deploy", "--yes", **SECRETS)
    assert 0 == done.returncode, done.stderr
    roles = 3 * ["projects add-iam-policy-binding p"]
    secrets = [f"secrets add-iam-policy-binding {name}" for name in SECRETS.values()]
    assert [
        "iam service-accounts create",
        *roles,
        *secrets,
        "compute firewall-rules create",
        "compute instances create",
    ] == cloud.changes
    assert "--service-account=structured-server-vm@p.iam.gserviceaccount.com" in created(cloud)
    assert (
        "compute ssh structured-server --project=p --zone=europe-west4-a --tunnel-through-iap" in done.stdout
    )


def test_deploying_again_changes_nothing(cloud: Cloud) -> None:
    cloud.be(
        found={
            "compute instances describe": there(),
            "iam service-accounts describe": {"email": "x"},
            "compute firewall-rules describe": {"name": "x"},
        }
    )
    done = cloud.run("deploy", "--yes")
    assert 0 == done.returncode, done.stderr
    assert 3 * ["projects add-iam-policy-binding p"] == cloud.changes, "which change nothing the second time"
    assert "is as it should be" in done.stdout


def test_a_machine_with_another_image_is_told_and_started_anew(cloud: Cloud) -> None:
    cloud.be(found={"compute instances describe": there(image="europe-west4-docker.pkg.dev/p/i/s:old")})
    assert 0 == cloud.run("deploy", "--yes").returncode
    assert ["compute instances add-metadata", "compute instances reset"] == cloud.changes[-2:]


def test_a_machine_of_another_type_is_left_alone(cloud: Cloud) -> None:
    cloud.be(found={"compute instances describe": there("4")})
    done = cloud.run("deploy", "--yes", PRECISION="16")
    assert 1 == done.returncode
    assert "structured-server is a g2-standard-8, and this precision wants a a2-highgpu-2g" in done.stderr
    assert "make gce-teardown" in done.stderr
    assert [] == cloud.calls


def test_a_machine_that_is_refused_is_an_error_with_the_command(cloud: Cloud) -> None:
    cloud.be(
        failing={"compute instances create": "ERROR: Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally."}
    )
    done = cloud.run("deploy", "--yes")
    assert 1 == done.returncode
    assert "GPUS_ALL_REGIONS" in done.stderr
    assert "Ask for quota" in done.stderr
    assert "gcloud compute instances create structured-server" in done.stderr


def test_teardown_deletes_what_was_made_and_nothing_else(cloud: Cloud) -> None:
    cloud.be(
        found={
            "compute instances describe": there(),
            "iam service-accounts describe": {"email": "x"},
            "compute firewall-rules describe": {"name": "x"},
        }
    )
    assert 0 == cloud.run("teardown").returncode
    assert [] == cloud.calls
    assert 0 == cloud.run("teardown", "--yes", **SECRETS).returncode
    assert [
        "compute instances delete",
        "compute firewall-rules delete",
        *3 * ["projects remove-iam-policy-binding p"],
        "iam service-accounts delete",
    ] == cloud.changes


@pytest.mark.parametrize(
    "said", ["NOT_FOUND: none.", "- The resource 'projects/p/zones/z/instances/s' was not found"]
)
def test_teardown_of_nothing_is_nothing(cloud: Cloud, said: str) -> None:
    assert 0 == cloud.run("teardown", "--yes", STUB_ABSENT=said).returncode
    assert [] == cloud.calls


def test_the_machine_can_be_reached_through_iap_only(cloud: Cloud) -> None:
    cloud.run("deploy", "--yes")
    (rule,) = [call for call in cloud.calls if call[:3] == ["compute", "firewall-rules", "create"]]
    assert "--source-ranges=35.235.240.0/20" in rule
    assert "--allow=tcp:22" in rule
    assert "--no-address" in created(cloud)
    assert "0.0.0.0" not in str(cloud.calls)
    text = units(EXAMPLE)["structured-server.service"]
    assert re.findall(r"--publish=\S+", text) == ["--publish=127.0.0.1:8080:8080"]
    assert "--network" not in text


def test_an_address_is_given_only_where_it_is_asked_for(cloud: Cloud) -> None:
    cloud.run("deploy", "--yes", EXTERNAL_ADDRESS="1")
    assert "--no-address" not in created(cloud)


def test_smoke_judges_the_tunnels_end(cloud: Cloud) -> None:
    with candidate() as url:
        done = cloud.run("smoke", "--poll-s", "0.05", URL=url, API_KEY="k")
        assert 0 == done.returncode, done.stderr
        assert "not ready: engine" in done.stdout
        assert "Bearer k" == Candidate.seen[-1]["Authorization"]
        assert "X-Serverless-Authorization" not in Candidate.seen[-1]
        Candidate.right = False
        done = cloud.run("smoke", "--poll-s", "0.05", URL=url)
    assert 1 == done.returncode
    assert "known answers are right" in done.stderr


# The units

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")


@needs_systemd
@pytest.mark.parametrize("precision", MACHINES)
def test_systemd_finds_nothing_wrong_with_the_units(precision: str) -> None:
    assert "" == checked.problems(replace(EXAMPLE, machine=MACHINES[precision], hf_secret=""))


@needs_systemd
def test_the_check_of_units_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER, tmp_path / "gce")
    unit = tmp_path / "gce" / "structured-server.service"
    unit.write_text(unit.read_text().replace("Restart=always", "Restart=allways"))
    monkeypatch.setattr("deploy.gce.user_data.FOLDER", tmp_path / "gce")
    assert "allways" in checked.problems()


# Secrets


class Google(BaseHTTPRequestHandler):
    """The metadata server and Secret Manager in one."""

    secrets: ClassVar[dict[str, str]] = {}
    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization")))
        if self.path.endswith("/service-accounts/default/token"):
            allowed = self.headers.get("Metadata-Flavor") == "Google"
            self._say(200 if allowed else 403, {"access_token": ACCESS_TOKEN, "expires_in": 3599})
        elif self.headers.get("Authorization") != f"Bearer {ACCESS_TOKEN}":
            self._say(401, {})
        else:
            found = self.secrets.get(self.path.split("/")[5])
            data = base64.b64encode((found or "").encode()).decode()
            self._say(
                404 if found is None else 200,
                {"name": self.path, "payload": {"data": data, "dataCrc32c": "1"}},
            )

    def _say(self, status: int, body: dict[str, Any]) -> None:
        written = json.dumps(body, indent=2).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def google() -> Iterator[str]:
    """Serve both, and give the URL."""
    Google.secrets, Google.seen = {"hf-token": HUB_TOKEN + "\n", "server-keys": KEYS}, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Google)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(google: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script as its unit does."""
    environ = {
        "PATH": os.environ["PATH"], "PROJECT": "p", "RUNTIME_DIRECTORY": str(folder), "METADATA_URL": google,
        "SECRETS_URL": google, "READER": str(os.getuid()), **variables,
    }  # fmt: skip
    script = ["bash", "-x", str(FOLDER / "fetch-secrets.sh")]  # -x: what it runs is on standard error
    return subprocess.run(script, env=environ, capture_output=True, text=True, timeout=60)


def test_secrets_come_into_memory_for_those_who_need_them(google: str, tmp_path: Path) -> None:
    done = fetch(google, tmp_path, **SECRETS)
    assert 0 == done.returncode, done.stderr
    assert f"HF_TOKEN={HUB_TOKEN}\n" == (tmp_path / "secrets.env").read_text()
    assert KEYS == (tmp_path / "keys" / "keys.yaml").read_text()
    for file in (tmp_path / "secrets.env", tmp_path / "keys" / "keys.yaml"):
        assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert "/v1/projects/p/secrets/hf-token/versions/latest:access" == Google.seen[1][0]


def test_no_secret_is_an_argument_of_a_program(google: str, tmp_path: Path) -> None:
    """The shell's own words (printf, assignments) are no programs: no list of processes shows them."""
    done = fetch(google, tmp_path, **SECRETS)
    programs = [
        line for line in done.stderr.splitlines() if re.match(r"\++ (curl|sed|tr|base64|chown|mkdir)\b", line)
    ]
    assert len(programs) > 5
    for marker in (ACCESS_TOKEN, HUB_TOKEN, "keys-marker"):
        assert not [line for line in programs if marker in line]
        assert marker not in done.stdout


def test_without_secrets_nobody_is_asked(google: str, tmp_path: Path) -> None:
    assert 0 == fetch(google, tmp_path).returncode
    assert "" == (tmp_path / "secrets.env").read_text()
    assert [] == Google.seen


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ({}, "the secret hf-token cannot be read"),
        ({"hf-token": "", "server-keys": KEYS}, "the secret hf-token is not a token in one line"),
        ({"hf-token": "a\nHF_HUB_OFFLINE=1", "server-keys": KEYS}, "is not a token in one line"),
        ({"hf-token": "a", "server-keys": ""}, "the secret server-keys is empty"),
    ],
)
def test_a_secret_that_cannot_be_used_ends_the_start(
    google: str, tmp_path: Path, secrets: dict[str, str], said: str
) -> None:
    Google.secrets = secrets
    done = fetch(google, tmp_path, **SECRETS)
    assert 1 == done.returncode
    assert said in done.stderr
    assert ACCESS_TOKEN not in done.stdout


def test_no_secret_is_in_what_the_machine_is_told(cloud: Cloud) -> None:
    done = cloud.run("deploy", **SECRETS, HF_TOKEN=HUB_TOKEN)
    assert HUB_TOKEN not in done.stdout + done.stderr
    assert "HF_SECRET=hf-token" in done.stdout, "its name is"
