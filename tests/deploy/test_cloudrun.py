"""The deployment to Cloud Run, against a `gcloud` that records and a candidate that plays its part."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.check.cloudrun_schema import problems
from deploy.cloudrun.manifest import FILES
from tests.deploy.candidate import Candidate, candidate
from tests.deploy.cloud import Cloud

TOKEN = "identity-token-marker"  # noqa: S105  a marker
KEY = "api-key-marker"
OLD = "structured-server-old"


class Service(Cloud):
    """A project with, perhaps, a service of Cloud Run."""

    def serve(self, name: str = OLD) -> None:
        """Have a revision with all traffic."""
        revision = {
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        traffic = [{"revisionName": name, "percent": 100}]
        self.be(service={"status": {"traffic": traffic}}, revisions=[revision])

    @property
    def serving(self) -> dict[str, int]:
        """The traffic, by revision."""
        traffic = self.state["service"]["status"]["traffic"]
        return {each["revisionName"]: each["percent"] for each in traffic if each["percent"]}

    def deploy(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Deploy for real, impatiently."""
        return self.run("deploy", "--yes", "--poll-s", "0.05", "--limit-s", "1", *arguments, **variables)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Service]:
    """A project without anything."""
    environ = {
        "REGION": "europe-west4", "IMAGE": "europe-west4-docker.pkg.dev/p/i/s:gpu", "API_KEY": KEY,
    }  # fmt: skip
    with candidate() as url:
        state = {"token": TOKEN, "candidate_url": url, "service": None}
        yield Service(tmp_path, "deploy.cloudrun", environ, **state)


def test_without_yes_nothing_is_changed_and_everything_is_shown(cloud: Service) -> None:
    cloud.serve()
    done = cloud.run("deploy")
    assert 0 == done.returncode, done.stderr
    assert [] == cloud.changes
    for shown in ("iam service-accounts create", "run services replace", "update-traffic", "tag: candidate"):
        assert shown in done.stdout


def test_a_candidate_gets_the_traffic_once_it_is_ready_and_right(cloud: Service) -> None:
    cloud.serve()
    done = cloud.deploy()
    assert 0 == done.returncode, done.stderr
    assert [
        "iam service-accounts create",
        "run services replace",
        "run services update-traffic",
    ] == cloud.changes
    (name,) = cloud.serving
    assert {name: 100} == cloud.serving
    assert OLD != name
    assert "not ready: engine" in done.stdout
    headers = Candidate.seen[-1]
    assert f"Bearer {TOKEN}" == headers["X-Serverless-Authorization"]
    assert f"Bearer {KEY}" == headers["Authorization"]


@pytest.mark.parametrize("fault", ["never ready", "wrong", "beside the labels"])
def test_a_candidate_that_fails_gets_no_traffic(cloud: Service, fault: str) -> None:
    cloud.serve()
    if fault == "never ready":
        Candidate.not_ready = 10**6
    Candidate.right = fault != "wrong"
    Candidate.mass = 0.2 if fault == "beside the labels" else 0.99
    done = cloud.deploy()
    assert 1 == done.returncode
    assert {OLD: 100} == cloud.serving
    assert "run services update-traffic" not in cloud.changes
    said = {
        "never ready": "not ready after 1 s: engine",
        "wrong": "0 of 12 known answers are right",
        "beside the labels": "lies beside the labels for 3 questions",
    }
    assert said[fault] in done.stderr
    assert f"All traffic stays with {OLD}" in done.stderr
    assert "gcloud run services logs read" in done.stderr


def test_the_first_revision_is_served_and_judged(cloud: Service) -> None:
    done = cloud.deploy()
    assert 0 == done.returncode, done.stderr
    assert [100] == list(cloud.serving.values())
    assert "run services update-traffic" not in cloud.changes


def test_deploying_again_makes_nothing_twice(cloud: Service) -> None:
    cloud.serve()
    cloud.be(found={"iam service-accounts describe": {"email": "x"}})
    assert 0 == cloud.deploy().returncode
    assert ["run services replace", "run services update-traffic"] == cloud.changes


def test_rollback_is_one_command(cloud: Service) -> None:
    cloud.serve()
    assert 0 == cloud.deploy().returncode
    assert [] == [name for name in cloud.serving if name == OLD]
    done = cloud.run("rollback", "--yes")
    assert 0 == done.returncode, done.stderr
    assert {OLD: 100} == cloud.serving
    assert 1 == cloud.run("rollback", "--yes").returncode, "there is none before it"


def test_teardown_leaves_what_it_did_not_make(cloud: Service) -> None:
    cloud.serve()
    cloud.be(found={"iam service-accounts describe": {"email": "x"}, "secrets describe": {"name": "y"}})
    assert 0 == cloud.run("teardown").returncode
    assert [] == cloud.changes
    assert 0 == cloud.run("teardown", "--yes", BUCKET="b", KEYS_SECRET="k").returncode  # noqa: S106  a name
    assert ["run services delete", "secrets delete structured-server-monitoring"] == cloud.changes[:2]
    assert "k" not in str(cloud.changes)


def test_smoke_judges_what_is_there_and_changes_nothing(cloud: Service) -> None:
    cloud.serve()
    assert 0 == cloud.deploy().returncode
    before = cloud.changes
    assert 0 == cloud.run("smoke", "--poll-s", "0.05").returncode
    assert before == cloud.changes


def test_weights_are_staged_into_a_bucket_of_the_same_region(cloud: Service, tmp_path: Path) -> None:
    done = cloud.run("stage-weights", "--yes", BUCKET="b", SOURCE=str(tmp_path))
    assert 0 == done.returncode, done.stderr
    (made,) = [call for call in cloud.state["calls"] if call[:3] == ["storage", "buckets", "create"]]
    assert "--location=europe-west4" in made
    (copied,) = [call for call in cloud.state["calls"] if call[:2] == ["storage", "rsync"]]
    assert "gs://b/diffusiongemma-26B-A4B-it-AWQ-INT4" in copied


def test_nothing_that_is_secret_is_printed(cloud: Service) -> None:
    cloud.serve()
    for arguments in (
        ["deploy"],
        ["deploy", "--yes", "--poll-s", "0.05"],
        ["smoke"],
        ["doctor"],
        ["rollback"],
    ):
        done = cloud.run(*arguments)
        for secret in (TOKEN, KEY):
            assert secret not in done.stdout + done.stderr
    assert not [word for call in cloud.state["calls"] for word in call if TOKEN in word or KEY in word]


def test_a_failing_command_says_which_and_what_to_do(cloud: Service) -> None:
    cloud.be(
        failing={"run services describe": "ERROR: SERVICE_DISABLED: Cloud Run Admin API has not been used"}
    )
    done = cloud.deploy()
    assert 1 == done.returncode
    assert "run services describe structured-server" in done.stderr
    assert "make cloudrun-doctor" in done.stderr


# The doctor

WELL: dict[str, Any] = {
    "auth list": [{"account": "me@example.org"}],
    "projects describe": {"projectId": "p"},
    "services list": [
        {"config": {"name": f"{name}.googleapis.com"}}
        for name in ("run", "artifactregistry", "secretmanager")
    ],
    "projects get-iam-policy": {"bindings": [{"role": "roles/owner", "members": ["user:me@example.org"]}]},
    "beta quotas info describe": {
        "dimensionsInfos": [{"applicableLocations": ["europe-west4"], "details": {"value": "3"}}]
    },
    "artifacts docker images describe": {"image_summary": {}},
    "storage buckets describe": {"location": "EUROPE-WEST4"},
    "secrets describe": {"name": "k"},
}
NAMES = {"BUCKET": "b", "KEYS_SECRET": "k"}


def test_the_doctor_finds_nothing_where_all_is_well(cloud: Service) -> None:
    cloud.be(found=WELL)
    done = cloud.run("doctor", **NAMES)
    assert 0 == done.returncode, done.stdout
    assert 9 == done.stdout.count("ok     ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"auth list": []}, "gcloud auth login"),
        ({"projects describe": None}, "there is no project p"),
        ({"services list": WELL["services list"][1:]}, "gcloud services enable run.googleapis.com"),
        ({"projects get-iam-policy": {"bindings": []}}, "--role=roles/run.admin"),
        ({"beta quotas info describe": {"dimensionsInfos": []}}, "grants this project too few nvidia-l4"),
        (
            {
                "beta quotas info describe": {
                    "dimensionsInfos": [{"applicableLocations": ["us-east4"], "details": {"value": "3"}}]
                }
            },
            "or take another region",
        ),
        ({"artifacts docker images describe": None}, "build and push it"),
        ({"storage buckets describe": {"location": "US"}}, "the bucket is in us"),
        ({"storage buckets describe": None}, "make cloudrun-stage-weights"),
        ({"secrets describe": None}, "gcloud secrets create k"),
    ],
)
def test_the_doctor_names_what_is_wrong_and_what_mends_it(
    cloud: Service, change: dict[str, Any], said: str
) -> None:
    cloud.be(found=WELL | change)
    done = cloud.run("doctor", **NAMES)
    assert 1 == done.returncode
    (wrong,) = [line for line in done.stdout.splitlines() if line.startswith("wrong")]
    assert said in wrong


def test_the_doctor_says_when_no_token_can_be_had(cloud: Service) -> None:
    cloud.be(found=WELL, failing={"auth print-identity-token": "ERROR: no valid credentials"})
    done = cloud.run("doctor", **NAMES)
    assert "wrong  identity token" in done.stdout
    assert "gcloud auth login" in done.stdout


def test_without_gcloud_it_says_what_to_install(cloud: Service, tmp_path: Path) -> None:
    done = cloud.run("doctor", PATH=str(tmp_path))
    assert 1 == done.returncode
    assert "install the Google Cloud CLI" in done.stderr


# The manifests


@pytest.mark.parametrize("layout", sorted(FILES))
def test_the_manifests_are_as_the_api_describes_them(layout: str) -> None:
    assert [] == list(problems(FILES[layout].read_text()))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("containerConcurrency:", "containerConcurency:"),
        ("timeoutSeconds: 600", "timeoutSeconds: soon"),
        ("periodSeconds: 15", "periodSecond: 15"),
        ("containerPort: 8080", "port: 8080"),
    ],
)
def test_a_misspelt_field_is_found(right: str, wrong: str) -> None:
    text = FILES["single"].read_text()
    assert right in text
    assert list(problems(text.replace(right, wrong)))


def test_with_sidecars_only_the_proxy_has_a_port_and_only_the_engine_a_gpu(cloud: Service) -> None:
    done = cloud.deploy("--layout", "sidecars", PROXY_IMAGE="p", ENGINE_IMAGE="e")
    assert 0 == done.returncode, done.stderr
    containers = cloud.state["service"]["spec"]["template"]["spec"]["containers"]
    assert ["proxy"] == [each["name"] for each in containers if "ports" in each]
    limits = {each["name"]: each["resources"]["limits"] for each in containers}
    assert ["engine"] == [name for name, each in limits.items() if "nvidia.com/gpu" in each]
    assert "secrets create structured-server-monitoring" in cloud.changes
