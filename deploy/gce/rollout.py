"""One machine that serves: make what is missing, change what differs. And the way back."""

from __future__ import annotations

import shlex
from typing import Any

import click

from deploy.gce import machine
from deploy.gce.pieces import account, grants, network, router
from deploy.gce.target import Target
from deploy.gcloud import Gcloud, GcloudFailed

AGAIN = "sudo google_metadata_script_runner startup"


class OtherMachine(click.ClickException):
    """The machine that is there is of another kind than the precision needs."""


def deploy(target: Target, gcloud: Gcloud) -> None:
    """Bring the project to where one machine serves. What is there already is left as it is.

    Raises:
        GcloudFailed: a command fails. What was made before it stays; deploying again goes on from there.
        NotOurs: a name is taken.
        OtherMachine: the machine that is there is of another kind.
    """
    for piece in (account(target), *network(target)):
        if piece.found(gcloud) is None:
            piece.make(gcloud)
    _way_out(target, gcloud)
    _roles(target, gcloud)
    values = machine.metadata(target)
    if not gcloud.act:
        for name in ("structured-server-machine", "structured-server-container"):
            click.echo(f"{name}:\n{values[name]}")
    with machine.as_files(values) as flag:
        piece = machine.piece(target, flag)
        found = piece.found(gcloud)
        if found is None:
            piece.make(gcloud)
        else:
            _renew(target, gcloud, found, values, flag)
    _say_how_to_reach(target)


def tear_down(target: Target, gcloud: Gcloud) -> None:
    """Delete the machine and what was made for it. Image and secrets stay.

    Raises:
        GcloudFailed: a command fails.
    """
    machine.piece(target, "").delete(gcloud)
    member = f"serviceAccount:{target.account}"
    for grant in grants(target):
        if grant.held(gcloud, member):
            grant.change(gcloud, "remove", member)
    for piece in (*reversed(network(target)), account(target)):
        piece.delete(gcloud)


def _way_out(target: Target, gcloud: Gcloud) -> None:
    """Make the router's NAT. It goes with its router."""
    found = router(target).found(gcloud) or {}
    if not any(each["name"] == target.name for each in found.get("nats", ())):
        gcloud.do("compute", "routers", "nats", "create", target.name, f"--router={target.name}",
                  f"--region={target.region}", "--auto-allocate-nat-external-ips",
                  "--nat-all-subnet-ip-ranges")  # fmt: skip


def _roles(target: Target, gcloud: Gcloud) -> None:
    member = f"serviceAccount:{target.account}"
    for grant in grants(target):
        held = grant.held(gcloud, member)
        if held is None:
            raise GcloudFailed(f"there is no {' '.join(grant.kind)} {grant.name}: make it first.")
        if not held:
            grant.change(gcloud, "add", member)


def _renew(target: Target, gcloud: Gcloud, found: dict[str, Any], values: dict[str, str], flag: str) -> None:
    kind = str(found["machineType"]).rpartition("/")[2]
    if kind != target.machine.kind:
        raise OtherMachine(
            f"{target.name} is a {kind}, and this precision needs a {target.machine.kind}: "
            "`make gce-teardown` first, or take another VM=NAME beside it."
        )
    has = {each["key"]: each["value"] for each in found.get("metadata", {}).get("items", ())}
    differs = any(has.get(name) != value for name, value in values.items())
    place = f"--zone={target.zone}"
    if differs:
        gcloud.do("compute", "instances", "add-metadata", target.name, place, flag)
    if found.get("status") == "TERMINATED":
        gcloud.do("compute", "instances", "start", target.name, place)  # it starts from its metadata
    elif differs:
        try:
            gcloud.do("compute", "ssh", target.name, place, "--tunnel-through-iap", f"--command={AGAIN}")
        except GcloudFailed as error:
            raise GcloudFailed(
                f"{error.message}\nThe machine has its new settings, and takes them once this command is "
                "run, or at its next start."
            ) from error
    else:
        click.echo(f"{target.name} is as it should be")


def _say_how_to_reach(target: Target) -> None:
    ssh = ("gcloud", "compute", "ssh", target.name, f"--zone={target.zone}", f"--project={target.project}",
           "--tunnel-through-iap")  # fmt: skip
    follow = "--command=sudo journalctl --unit=structured-server --follow"
    click.echo(
        "\nThe first start takes minutes: driver, image, weights. To look, open a tunnel in one terminal\n"
        f"  {shlex.join((*ssh, '--', '-N', '-L', '8080:localhost:8080'))}\n"
        "and ask in another\n"
        "  make gce-smoke\n"
        "What it is doing:\n"
        f"  {shlex.join((*ssh, follow))}"
    )
