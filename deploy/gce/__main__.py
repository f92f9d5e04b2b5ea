"""`python -m deploy.gce`: every command shows what it would do, and does it with --yes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from deploy import judging
from deploy.gce import rollout
from deploy.gce.target import MACHINES, Target
from deploy.gcloud import Gcloud, Hints

_TURN_ON = (
    "Turn the APIs on: gcloud services enable compute.googleapis.com iap.googleapis.com "
    "secretmanager.googleapis.com artifactregistry.googleapis.com iam.googleapis.com"
)
_ROLE = "A role is missing: docs/deploy-gce.md names those that deploying takes."
_ZONE = "The zone has no such machine to give now: take another ZONE, or try again later."
_QUOTA = "Ask for quota, which may take days: https://console.cloud.google.com/iam-admin/quotas"
_HINTS: Hints = (
    ("SERVICE_DISABLED", _TURN_ON),
    ("has not been used in project", _TURN_ON),
    ("ZONE_RESOURCE_POOL_EXHAUSTED", _ZONE),
    ("does not have enough resources", _ZONE),
    ("Quota '", _QUOTA),
    ("QUOTA_EXCEEDED", _QUOTA),
    ("PERMISSION_DENIED", _ROLE),
    ("does not have permission", _ROLE),
    ("Required '", _ROLE),
)

_OPTIONS = (
    click.option("--project", envvar="PROJECT", required=True, help="The Google Cloud project."),
    click.option("--zone", envvar="ZONE", required=True, help="A zone with the GPU, e.g. europe-west4-a."),
    click.option("--vm", "name", envvar="VM", default=Target.__dataclass_fields__["name"].default,
                 show_default=True, help="The machine's name, and that of all that is made for it."),
    click.option("--image", envvar="IMAGE", default="", help="The image with proxy and engine."),
    click.option("--hf-secret", envvar="HF_SECRET", default="", help="The secret with the hub's token."),
    click.option("--keys-secret", envvar="KEYS_SECRET", default="", help="The secret with the keys file."),
    click.option("--yes", "act", is_flag=True, envvar="YES",
                 help="Do it, in place of showing what it would be."),
)  # fmt: skip


def _on_target(command: Callable[..., None]) -> Callable[..., None]:
    def run(project: str, act: bool, precision: str = "4", **values: Any) -> None:
        try:
            target = Target(project=project, machine=MACHINES[precision], **values)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        command(target, Gcloud(project, act=act, hints=_HINTS))

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    wrapped: Callable[..., None] = run
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Deploy to one machine of Compute Engine. docs/deploy-gce.md is the guide."""


@main.command(
    epilog="\b\nExample:\n  make gce-deploy PROJECT=p ZONE=europe-west4-a PRECISION=4 IMAGE=... YES=1"
)
@click.option("--precision", envvar="PRECISION", required=True, type=click.Choice(list(MACHINES)),
              help="Bits of a weight: which model, and which machine.")  # fmt: skip
@click.option("--model", envvar="MODEL", default="", help="Another than the precision's.")
@click.option("--revision", envvar="REVISION", default="", help="Of the model, on the hub: pin it.")
@click.option("--tokenizer", envvar="TOKENIZER", default="", help="Where not the model's own.")
@click.option("--engine-args", envvar="ENGINE_ARGS", default="", help="More arguments of `vllm serve`.")
@click.option("--system", envvar="SYSTEM", default=Target.__dataclass_fields__["system"].default,
              show_default=True, help="The image family that the machine boots.")  # fmt: skip
@_on_target
def deploy(target: Target, gcloud: Gcloud) -> None:
    """Make the machine and what it needs, or bring what is there up to date."""
    if not target.image:
        raise click.UsageError("--image is missing: build and push one (docs/image.md).")
    rollout.deploy(target, gcloud)


@main.command(epilog="\b\nExample:\n  make gce-teardown PROJECT=p ZONE=europe-west4-a YES=1")
@_on_target
def teardown(target: Target, gcloud: Gcloud) -> None:
    """Delete the machine, its network, its account and its roles, and nothing that was not made here."""
    rollout.tear_down(target, gcloud)


@main.command(epilog="\b\nExample:\n  make gce-smoke API_KEY=...")
@click.option("--url", envvar="URL", default="http://127.0.0.1:8080", show_default=True,
              help="The tunnel's end.")  # fmt: skip
@click.option("--key", envvar="API_KEY", default="", help="An API key, where the server asks for one.")
@click.option("--limit-s", envvar="READY_LIMIT_S", type=float, default=1800.0, show_default=True,
              help="How long it may load.")  # fmt: skip
@click.option("--poll-s", type=float, default=judging.POLL_S, hidden=True)
def smoke(url: str, key: str, limit_s: float, poll_s: float) -> None:
    """Wait until the server at a tunnel's end is ready, and hold it to what is known."""
    server = judging.Server(url, key=key)
    problem = judging.wait_until_ready(server, limit_s, click.echo, poll_s)
    problems = [problem] if problem else list(judging.smoke(server))
    for each in problems:
        click.echo(each, err=True)
    if not problems:
        click.echo("it is ready and answers what is known")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
