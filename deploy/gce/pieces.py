"""What a deployment is made of beside its machine: how each piece is looked at, made, and deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from deploy.gce.target import Target
from deploy.gcloud import Gcloud

MADE = "Made by deploy/gce of structured-server"
"""The description of all that is made here. Only what has it is changed or deleted."""
IAP = "35.235.240.0/20"
"""Whence the tunnels of Identity-Aware Proxy come."""
RANGE = "10.0.0.0/28"
READER = "roles/artifactregistry.reader"
ACCESSOR = "roles/secretmanager.secretAccessor"


class NotOurs(click.ClickException):
    """Something has the name that a piece would have, and was not made here."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing in the project."""

    kind: tuple[str, ...]
    name: str
    place: tuple[str, ...] = ()
    made_with: tuple[str, ...] = ()
    made_as: str = ""  # where it is made by another name than it has afterwards

    def found(self, gcloud: Gcloud) -> dict[str, Any] | None:
        """Return it as it is, None where there is none.

        Raises:
            GcloudFailed: it cannot be looked at.
            NotOurs: there is one that was not made here.
        """
        found: dict[str, Any] | None = gcloud.look(*self.kind, "describe", self.name, *self.place)
        if found is not None and found.get("description") != MADE:
            raise NotOurs(
                f"there is {' '.join(self.kind)} {self.name}, which was not made here: take another VM=NAME."
            )
        return found

    def make(self, gcloud: Gcloud) -> None:
        """Make it."""
        name = self.made_as or self.name
        gcloud.do(*self.kind, "create", name, *self.place, *self.made_with, f"--description={MADE}")

    def delete(self, gcloud: Gcloud) -> None:
        """Delete it, if it is there and was made here."""
        try:
            found = self.found(gcloud)
        except NotOurs:
            click.echo(f"left: {' '.join(self.kind)} {self.name}, which was not made here")
            return
        if found is not None:
            gcloud.do(*self.kind, "delete", self.name, *self.place)


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for the machine's account on one thing of somebody else's."""

    kind: tuple[str, ...]
    name: str
    role: str

    def held(self, gcloud: Gcloud, member: str) -> bool | None:
        """Say whether the account has the role, None where there is no such thing."""
        policy = gcloud.look(*self.kind, "get-iam-policy", self.name)
        if policy is None:
            return None
        return any(
            each["role"] == self.role and member in each["members"] for each in policy.get("bindings", ())
        )

    def change(self, gcloud: Gcloud, verb: str, member: str) -> None:
        """Add the role, or remove it."""
        gcloud.do(*self.kind, f"{verb}-iam-policy-binding", self.name, f"--member={member}",
                  f"--role={self.role}")  # fmt: skip


def account(target: Target) -> Piece:
    """Return the account that the machine has."""
    return Piece(
        ("iam", "service-accounts"),
        target.account,
        made_with=("--display-name=Structured decisions on a VM",),
        made_as=target.name,
    )


def network(target: Target) -> tuple[Piece, ...]:
    """Return the pieces of a network in which nothing but the tunnel reaches the machine."""
    name, region = target.name, f"--region={target.region}"
    inside = f"--network={name}"
    return (
        Piece(("compute", "networks"), name, (), ("--subnet-mode=custom",)),
        Piece(
            ("compute", "networks", "subnets"),
            name,
            (region,),
            (inside, f"--range={RANGE}", "--enable-private-ip-google-access"),
        ),
        Piece(
            ("compute", "firewall-rules"),
            f"{name}-iap",
            (),
            (inside, "--direction=INGRESS", "--allow=tcp:22", f"--source-ranges={IAP}",
             f"--target-service-accounts={target.account}"),
        ),
        router(target),
    )  # fmt: skip


def router(target: Target) -> Piece:
    """Return the router, whose NAT is the way out: to the model hub, and to registries."""
    return Piece(
        ("compute", "routers"), target.name, (f"--region={target.region}",), (f"--network={target.name}",)
    )


def grants(target: Target) -> tuple[Grant, ...]:
    """Return the roles that the machine needs: to read its secrets, and its image."""
    secrets = tuple(Grant(("secrets",), name, ACCESSOR) for name in target.secrets)
    if target.repository is None:
        return secrets
    return (*secrets, Grant(("artifacts", "repositories"), target.repository.path, READER))
