"""Making the machine with what it needs, changing it, and deleting what was made."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from deploy.gce.machine import BOOT_FAMILY, BOOT_PROJECT, Target
from deploy.gce.user_data import user_data
from deploy.gcloud import Gcloud

ACCESSOR = "roles/secretmanager.secretAccessor"
ROLES = ("roles/artifactregistry.reader", "roles/logging.logWriter", "roles/monitoring.metricWriter")
IAP_RANGE = "35.235.240.0/20"
"""Where Identity-Aware Proxy's tunnels come from."""


class OtherMachine(click.ClickException):
    """There is a machine of that name which is of another type."""


def deploy(target: Target, gcloud: Gcloud) -> None:
    """Make the machine, or give the one that is there its new configuration.

    Raises:
        GcloudFailed: a command fails.
        OtherMachine: the machine that is there cannot become this one.
    """
    there = described(target, gcloud)
    kind = str((there or {}).get("machineType", target.machine.kind)).rpartition("/")[2]
    if kind != target.machine.kind:
        raise OtherMachine(
            f"{target.name} is a {kind}, and this precision wants a {target.machine.kind}: "
            "`make gce-teardown` first, or take another NAME."
        )
    _prepare(target, gcloud)
    said = user_data(target)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "user-data.yaml"
        file.write_text(said, encoding="utf-8")
        if there is None:
            _create(target, gcloud, file)
        elif _told(there) != said:
            gcloud.do("compute", "instances", "add-metadata", target.name, f"--zone={target.zone}",
                      f"--metadata-from-file=user-data={file}")  # fmt: skip
            gcloud.do("compute", "instances", "reset", target.name, f"--zone={target.zone}")
        else:
            click.echo(f"{target.name} is as it should be")
    if not gcloud.act:
        click.echo(said)


def tear_down(target: Target, gcloud: Gcloud) -> None:
    """Delete the machine with its disk, its rule and its account. Image, secrets and network stay."""
    if described(target, gcloud):
        gcloud.do("compute", "instances", "delete", target.name, f"--zone={target.zone}")
    if gcloud.look("compute", "firewall-rules", "describe", target.firewall_rule):
        gcloud.do("compute", "firewall-rules", "delete", target.firewall_rule)
    if gcloud.look("iam", "service-accounts", "describe", target.account):
        member = f"--member=serviceAccount:{target.account}"
        for role in ROLES:
            gcloud.do("projects", "remove-iam-policy-binding", target.project, member, f"--role={role}",
                      "--condition=None")  # fmt: skip
        gcloud.do("iam", "service-accounts", "delete", target.account)


def described(target: Target, gcloud: Gcloud) -> dict[str, Any] | None:
    """Return the machine as it is, None where there is none."""
    found: dict[str, Any] | None = gcloud.look(
        "compute", "instances", "describe", target.name, f"--zone={target.zone}"
    )
    return found


def tunnel(target: Target) -> str:
    """Return the command that brings the server's port to this machine."""
    return (
        f"gcloud compute ssh {target.name} --project={target.project} --zone={target.zone} "
        "--tunnel-through-iap -- -N -L 8080:127.0.0.1:8080"
    )


def _prepare(target: Target, gcloud: Gcloud) -> None:
    """Make what the machine needs and is not there: its account with its roles, and the way in for SSH."""
    member = f"--member=serviceAccount:{target.account}"
    if gcloud.look("iam", "service-accounts", "describe", target.account) is None:
        gcloud.do("iam", "service-accounts", "create", f"{target.name}-vm",
                  "--display-name=Structured decisions")  # fmt: skip
    for role in ROLES:
        gcloud.do("projects", "add-iam-policy-binding", target.project, member, f"--role={role}",
                  "--condition=None")  # fmt: skip
    for name in target.secrets:
        gcloud.do("secrets", "add-iam-policy-binding", name, member, f"--role={ACCESSOR}")
    if gcloud.look("compute", "firewall-rules", "describe", target.firewall_rule) is None:
        gcloud.do("compute", "firewall-rules", "create", target.firewall_rule,
                  f"--network={target.network}", "--direction=INGRESS", "--allow=tcp:22",
                  f"--source-ranges={IAP_RANGE}",
                  f"--target-service-accounts={target.account}")  # fmt: skip


def _create(target: Target, gcloud: Gcloud, user_data_file: Path) -> None:
    gcloud.do(
        "compute", "instances", "create", target.name, f"--zone={target.zone}",
        f"--machine-type={target.machine.kind}",
        "--maintenance-policy=TERMINATE",  # machines with GPUs cannot be moved
        f"--image-family={BOOT_FAMILY}", f"--image-project={BOOT_PROJECT}",
        f"--boot-disk-size={target.machine.disk_gb}GB", "--boot-disk-type=pd-balanced",
        f"--network={target.network}",
        *([] if target.external_address else ["--no-address"]),
        f"--service-account={target.account}", "--scopes=cloud-platform",
        "--shielded-secure-boot", "--shielded-vtpm", "--shielded-integrity-monitoring",
        "--metadata=enable-oslogin=TRUE,block-project-ssh-keys=TRUE,google-logging-enabled=true",
        f"--metadata-from-file=user-data={user_data_file}",
        "--labels=app=structured-server",
    )  # fmt: skip


def _told(machine: dict[str, Any]) -> str:
    items = machine.get("metadata", {}).get("items", ())
    return next((str(each["value"]) for each in items if each["key"] == "user-data"), "")
