"""Every command line of dgem's guide to remote endpoints has its counterpart, with the same flags, here."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from structured_server.google_auth import vertex_route
from tests.fake_server import answer, serving
from tests.proxy import Proxy, embedded_server

MODEL = "google/diffusiongemma-26B-A4B-it"
TEMPLATE = """{{/* As dgem's files are written. */}}
{
  "state": {{ toJson .ticket }},
  "questions": {
    "urgent": {"type": "noul", "instructions": "Should we wake an on-call engineer?"},
    "team": {"type": "choice", "instructions": "Which team owns the incident?",
             "criteria": {"compute": null, "networking": null, "storage": null, "billing": null}}
  }
}
"""


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A server with the embedded model, which answers to the guide's model name."""
    with embedded_server(tmp_path_factory.mktemp("embedded") / "log", "--model-alias", MODEL) as proxy:
        yield proxy


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with dgem's template, and a home of its own."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "support_triage.json.tmpl").write_text(TEMPLATE)
    return tmp_path


def run(line: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the guide, with `structured-server` in place of `./bin/dgem`."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("DGEM_", "STRUCTURED_"))
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        shlex.split(line.replace("./bin/dgem", "structured-server")),
        cwd=folder,
        env={**inherited, "PATH": path, "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def decided(done: subprocess.CompletedProcess[str]) -> bool:
    assert done.returncode in (0, 3), done.stderr
    return "urgent" in done.stdout and "team" in done.stdout


def test_a_decision_by_flags(embedded: Proxy, project: Path) -> None:
    line = f"""./bin/dgem decide -u "{embedded.url}/v1" -m "{MODEL}" -t templates/support_triage.json.tmpl
        -v 'ticket=Emergency: cluster outage' --stats"""
    done = run(line, project)
    assert decided(done)
    assert "time:" in done.stderr


def test_a_question_by_flags_to_any_compatible_endpoint(project: Path) -> None:
    said = {"choices": [{"message": {"content": "It fills a canvas."}, "finish_reason": "stop"}]}
    with serving(lambda *_: (200, said, {})) as server:
        done = run(
            f'./bin/dgem ask -u "{server.url}/v1" -m "{MODEL}" "Explain discrete block diffusion."', project
        )
    assert (0, "It fills a canvas.\n") == (done.returncode, done.stdout)
    assert MODEL == server.asked[0]["model"]


def test_a_question_to_the_embedded_model_is_refused_with_the_reason(embedded: Proxy, project: Path) -> None:
    done = run(f'./bin/dgem ask -u "{embedded.url}/v1" "Explain discrete block diffusion."', project)
    assert (4, True) == (done.returncode, "only reads" in done.stderr)


DECIDE = "./bin/dgem decide -t templates/support_triage.json.tmpl -v 'ticket=Database corrupted'"


def test_settings_by_environment(embedded: Proxy, project: Path) -> None:
    done = run(
        DECIDE,
        project,
        DGEM_URL=f"{embedded.url}/v1",
        DGEM_MODEL=MODEL,
        DGEM_TIMEOUT="60s",
        DGEM_STATS="true",
    )
    assert decided(done)
    assert "time:" in done.stderr


@pytest.mark.parametrize("place", [".dgem.yaml", ".config/dgem/config.yaml"])
def test_settings_by_file(embedded: Proxy, project: Path, place: str) -> None:
    file = project / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'url: "{embedded.url}/v1"\nmodel: "{MODEL}"\ntimeout: 60s\nstats: true\n')
    done = run(DECIDE, project)
    assert decided(done)
    assert "time:" in done.stderr


def test_a_bearer_token_by_environment(project: Path) -> None:
    with serving(lambda _, body: answer(body)) as server:
        settings = {"DGEM_URL": f"{server.url}/v1", "DGEM_TOKEN": "ya29.token"}
        run(f"{DECIDE} --stats -o json", project, **settings)
    assert "Bearer ya29.token" == server.headers[0]["authorization"]


def test_google_auth_is_a_flag_and_says_what_it_lacks(project: Path) -> None:
    line = f"{DECIDE} -u https://diffusiongemma-vllm-xyz.a.run.app/v1 --gcp-auth --stats"
    done = run(line, project, PATH=str(Path(sys.executable).parent), NO_GCE_CHECK="true")
    assert (6, True) == (done.returncode, "gcloud auth login" in done.stderr), done.stderr


def test_behind_a_proxy_of_gcloud_no_address_is_needed(embedded: Proxy, project: Path) -> None:
    """It listens on localhost: with --gcp-auth, too, no token is sent there."""
    assert decided(run(f"{DECIDE} -u http://localhost:{embedded.port} --stats", project))
    assert decided(run(f"{DECIDE} -u http://localhost:{embedded.port} --gcp-auth", project))


def test_vertex_is_asked_at_its_own_address() -> None:
    url = (
        "https://us-central1-aiplatform.googleapis.com/v1/projects/MY_PROJECT/locations/us-central1"
        "/endpoints/MY_ENDPOINT:rawPredict"
    )
    assert url == vertex_route(url)
