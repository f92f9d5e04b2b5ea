"""The deployment to one VM, against a `gcloud` that records and keeps what was made."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deploy.gce.pieces import IAP, MADE
from tests.deploy.candidate import Candidate, candidate
from tests.deploy.cloud import Cloud

IMAGE = "europe-west4-docker.pkg.dev/images-project/images/structured-server:gpu"
NAME = "structured-server-vm"
ACCOUNT = f"{NAME}@p.iam.gserviceaccount.com"
REPOSITORY = "artifacts repositories projects/images-project/locations/europe-west4/repositories/images"
OTHERS: dict[str, Any] = {"secrets hf": {}, "secrets keys": {}, REPOSITORY: {}}
SECRETS = {"HF_SECRET": "hf", "KEYS_SECRET": "keys"}
MADE_AT_FIRST = [
    "iam service-accounts create",
    "compute networks create",
    "compute networks subnets create",
    "compute firewall-rules create",
    "compute routers create",
    "compute routers nats create",
    "secrets add-iam-policy-binding",
    "secrets add-iam-policy-binding",
    "artifacts repositories add-iam-policy-binding",
    "compute instances create",
]


class Project(Cloud):
    """A project with, perhaps, a machine of ours."""

    def done(self) -> list[str]:
        """Return the kinds of commands that changed something since it was last asked."""
        verbs = ("create", "delete", "start", "add-metadata", "ssh", "add-iam-policy-binding",
                 "remove-iam-policy-binding")  # fmt: skip
        done = [
            " ".join(call[: next(at for at, word in enumerate(call) if word in verbs) + 1])
            for call in self.calls
        ]
        self.be(calls=[])
        return done

    @property
    def machine(self) -> dict[str, Any]:
        """The machine that was made."""
        found: dict[str, Any] = self.state["made"][f"compute instances {NAME}"]
        return found

    def metadata(self, key: str) -> str:
        """Return what the machine was told."""
        items: list[dict[str, str]] = self.machine["metadata"]["items"]
        return next(each["value"] for each in items if each["key"] == key)


@pytest.fixture
def cloud(tmp_path: Path) -> Project:
    """A project with an image and two secrets, and nothing of ours."""
    environ = {"ZONE": "europe-west4-a", "PRECISION": "4", "IMAGE": IMAGE, **SECRETS}
    return Project(tmp_path, "deploy.gce", environ, policies=OTHERS)


def test_without_yes_nothing_is_changed_and_everything_is_shown(cloud: Project) -> None:
    done = cloud.run("deploy")
    assert 0 == done.returncode, done.stderr
    for shown in MADE_AT_FIRST:
        assert f"would run: gcloud {shown}" in done.stdout
    assert "ENGINE_MODEL=cyankiwi/diffusiongemma-26B-A4B-it-AWQ-INT4" in done.stdout
    assert [] == cloud.done()


@pytest.mark.parametrize(
    ("precision", "kind", "model", "gpus"),
    [
        ("4", "g2-standard-8", "cyankiwi/diffusiongemma-26B-A4B-it-AWQ-INT4", "1"),
        ("8", "a2-highgpu-1g", "RedHatAI/diffusiongemma-26B-A4B-it-FP8-dynamic", "1"),
        ("16", "a2-highgpu-2g", "google/diffusiongemma-26B-A4B-it", "2"),
    ],
)
def test_each_precision_has_its_machine_and_its_model(
    cloud: Project, precision: str, kind: str, model: str, gpus: str
) -> None:
    done = cloud.run("deploy", "--yes", PRECISION=precision)
    assert 0 == done.returncode, done.stderr
    assert MADE_AT_FIRST == cloud.done()
    flags = cloud.machine["flags"]
    assert kind == flags["machine-type"]
    assert ACCOUNT == flags["service-account"]
    assert "no-address" in flags
    assert "no-deletion-protection" in flags
    told = dict(line.split("=", 1) for line in cloud.metadata("structured-server-container").splitlines())
    assert model == told["ENGINE_MODEL"]
    assert gpus == told["ENGINE_TENSOR_PARALLEL"]
    assert f"IMAGE={IMAGE}" in cloud.metadata("structured-server-machine").splitlines()
    assert "-L 8080:localhost:8080" in done.stdout


def test_a_machine_is_made_for_a_precision_that_there_is(cloud: Project) -> None:
    done = cloud.run("deploy", "--yes", PRECISION="2")
    assert 2 == done.returncode
    assert "'4', '8', '16'" in done.stderr


def test_deploying_again_changes_nothing(cloud: Project) -> None:
    assert 0 == cloud.run("deploy", "--yes").returncode
    cloud.done()
    done = cloud.run("deploy", "--yes")
    assert 0 == done.returncode, done.stderr
    assert [] == cloud.done()
    assert f"{NAME} is as it should be" in done.stdout


def test_another_image_is_told_to_the_machine_that_is_there(cloud: Project) -> None:
    assert 0 == cloud.run("deploy", "--yes").returncode
    cloud.done()
    assert 0 == cloud.run("deploy", "--yes", IMAGE=f"{IMAGE}-2").returncode
    assert ["compute instances add-metadata", "compute ssh"] == cloud.done()
    assert f"IMAGE={IMAGE}-2" in cloud.metadata("structured-server-machine").splitlines()


def test_a_machine_that_takes_no_connection_says_when_it_changes(cloud: Project) -> None:
    assert 0 == cloud.run("deploy", "--yes").returncode
    cloud.be(failing={"compute ssh": "ERROR: failed to connect to backend"})
    done = cloud.run("deploy", "--yes", IMAGE=f"{IMAGE}-2")
    assert 1 == done.returncode
    assert "or at its next start" in done.stderr


def test_a_stopped_machine_is_started(cloud: Project) -> None:
    assert 0 == cloud.run("deploy", "--yes").returncode
    made = cloud.state["made"]
    made[f"compute instances {NAME}"]["status"] = "TERMINATED"
    cloud.be(made=made)
    cloud.done()
    assert 0 == cloud.run("deploy", "--yes").returncode
    assert ["compute instances start"] == cloud.done()


def test_another_precision_does_not_replace_a_machine(cloud: Project) -> None:
    assert 0 == cloud.run("deploy", "--yes").returncode
    cloud.done()
    done = cloud.run("deploy", "--yes", PRECISION="16")
    assert 1 == done.returncode
    assert "make gce-teardown" in done.stderr
    assert [] == cloud.done()


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("Quota 'NVIDIA_L4_GPUS' exceeded.  Limit: 0.0 in region europe-west4.", "Ask for quota"),
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "take another ZONE"),
        ("Required 'compute.instances.create' permission for 'x'", "A role is missing"),
    ],
)
def test_a_refused_machine_says_what_to_do_and_the_next_try_goes_on_from_there(
    cloud: Project, said: str, advice: str
) -> None:
    cloud.be(failing={"compute instances create": f"ERROR: (gcloud.compute.instances.create) {said}"})
    done = cloud.run("deploy", "--yes")
    assert 1 == done.returncode
    assert said in done.stderr
    assert advice in done.stderr
    cloud.be(failing={})
    cloud.done()
    assert 0 == cloud.run("deploy", "--yes").returncode
    assert ["compute instances create"] == cloud.done()


def test_a_secret_that_is_not_there_is_named(cloud: Project) -> None:
    done = cloud.run("deploy", "--yes", HF_SECRET="absent")  # noqa: S106  a name
    assert 1 == done.returncode
    assert "there is no secrets absent" in done.stderr
    assert "compute instances create" not in cloud.done()


def test_teardown_deletes_all_that_was_made_and_nothing_else(cloud: Project) -> None:
    assert 0 == cloud.run("deploy", "--yes").returncode
    cloud.done()
    assert 0 == cloud.run("teardown").returncode
    assert [] == cloud.done()
    done = cloud.run("teardown", "--yes")
    assert 0 == done.returncode, done.stderr
    assert "compute instances delete" == cloud.done()[0], "the network cannot go before it"
    assert {} == cloud.state["made"]
    assert all([] == policy["bindings"] for policy in cloud.state["policies"].values())
    assert 0 == cloud.run("teardown", "--yes").returncode
    assert [] == cloud.done()


def test_what_somebody_else_made_is_neither_used_nor_deleted(cloud: Project) -> None:
    theirs = {f"compute networks {NAME}": {"description": "ours"}, f"iam service-accounts {ACCOUNT}": {}}
    cloud.be(made=theirs)
    done = cloud.run("deploy", "--yes")
    assert 1 == done.returncode
    assert "was not made here" in done.stderr
    assert 0 == cloud.run("teardown", "--yes").returncode
    assert [] == cloud.done()
    assert theirs == cloud.state["made"]


@pytest.mark.parametrize("name", ["VM", "x", "a-name-that-is-far-too-long-for-an-account"])
def test_a_name_that_cannot_be_is_refused(cloud: Project, name: str) -> None:
    done = cloud.run("deploy", VM=name)
    assert 2 == done.returncode
    assert "is no name for a machine" in done.stderr


def test_only_the_tunnel_is_let_in_and_no_command_carries_a_secret(cloud: Project) -> None:
    assert 0 == cloud.run("deploy", "--yes", HF_TOKEN="hf_marker").returncode  # noqa: S106  a marker
    words = [word for call in cloud.calls for word in call]
    assert not [word for word in words if word.endswith("/0") or "hf_marker" in word]
    (rule,) = [call for call in cloud.calls if "firewall-rules" in call]
    assert f"--source-ranges={IAP}" in rule
    assert "--allow=tcp:22" in rule
    assert not [each for each in cloud.machine["metadata"]["items"] if "hf_marker" in each["value"]]
    described = [call for call in cloud.calls if "create" in call and "nats" not in call]
    assert all(f"--description={MADE}" in call for call in described)


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="no gcloud here to ask")
def test_the_real_gcloud_knows_every_flag(cloud: Project, tmp_path: Path) -> None:
    for command, image in (("deploy", IMAGE), ("deploy", f"{IMAGE}-2"), ("teardown", IMAGE)):
        assert 0 == cloud.run(command, "--yes", IMAGE=image).returncode
    # Without an account it ends once it has understood the command.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")}
    environ |= {"CLOUDSDK_CONFIG": str(tmp_path / "empty"), "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
                "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true"}  # fmt: skip

    program = str(shutil.which("gcloud"))

    def said(call: list[str]) -> str:
        return subprocess.run([program, *call], env=environ, capture_output=True, text=True).stderr

    calls: list[list[str]] = cloud.state["calls"]
    distinct = {tuple(word.partition("=")[0] for word in call): call for call in calls}.values()
    with ThreadPoolExecutor(4) as pool:
        answers = dict(zip(map(" ".join, distinct), pool.map(said, distinct), strict=True))
    assert {} == {call: answer for call, answer in answers.items() if "active account" not in answer}


def test_smoke_judges_the_tunnels_end(cloud: Project) -> None:
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
