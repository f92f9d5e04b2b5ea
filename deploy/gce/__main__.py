"""`python -m deploy.gce`: every command shows what it would do, and does it with --yes."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from deploy.gce import lifecycle
from deploy.gce.machine import MACHINES, Target
from deploy.gcloud import Gcloud
from deploy.judging import POLL_S, Server, smoke, wait_until_ready

_OPTIONS = (
    click.option("--project", envvar="PROJECT", required=True, help="The Google Cloud project."),
    click.option("--zone", envvar="ZONE", required=True, help="A zone with the GPU, e.g. europe-west4-a."),
    click.option("--name", envvar="NAME", default="structured-server", show_default=True),
    click.option(
        "--precision",
        envvar="PRECISION",
        type=click.Choice(list(MACHINES)),
        default="4",
        show_default=True,
        help="Bits of a weight: 4 on one L4, 8 on one A100, 16 on two.",
    ),
    click.option("--image", envvar="IMAGE", default="", help="The image with proxy and engine."),
    click.option("--model", envvar="MODEL", default="", help="Where not the precision's own."),
    click.option("--network", envvar="NETWORK", default="default", show_default=True),
    click.option("--hf-secret", envvar="HF_SECRET", default="", help="The secret with the hub's token."),
    click.option("--keys-secret", envvar="KEYS_SECRET", default="", help="The secret with the keys file."),
    click.option(
        "--external-address",
        envvar="EXTERNAL_ADDRESS",
        is_flag=True,
        help="Give the machine an address, where the network has no NAT. No port is opened by it.",
    ),
    click.option(
        "--yes", "act", is_flag=True, envvar="YES", help="Do it, in place of showing what it would be."
    ),
)


def _on_target(command: Callable[[Target, Gcloud], None]) -> Callable[..., None]:
    def run(project: str, act: bool, precision: str, **values: object) -> None:
        target = Target(project=project, machine=MACHINES[precision], **values)  # type: ignore[arg-type]
        command(target, Gcloud(project, act=act))

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    wrapped: Callable[..., None] = run
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Deploy to one machine of Compute Engine. docs/deploy-gce.md is the guide."""


@main.command(
    epilog="\b\nExample:\n  make gce-deploy PROJECT=p ZONE=europe-west4-a IMAGE=... PRECISION=4 YES=1"
)
@_on_target
def deploy(target: Target, gcloud: Gcloud) -> None:
    """Make the machine, or give the one that is there its new configuration."""
    if not target.image:
        raise click.UsageError("--image is missing: build and push one (docs/image.md).")
    lifecycle.deploy(target, gcloud)
    click.echo(f"To reach it:  {lifecycle.tunnel(target)}")
    click.echo("and, beside that:  make gce-smoke")


@main.command(epilog="\b\nExample:\n  make gce-teardown PROJECT=p ZONE=europe-west4-a YES=1")
@_on_target
def teardown(target: Target, gcloud: Gcloud) -> None:
    """Delete the machine, its firewall rule and its account."""
    lifecycle.tear_down(target, gcloud)


@main.command("smoke", epilog="\b\nExample:\n  make gce-smoke API_KEY=...")
@click.option(
    "--url", envvar="URL", default="http://127.0.0.1:8080", show_default=True, help="The tunnel's end."
)
@click.option("--key", envvar="API_KEY", default="", help="An API key, where the server asks for one.")
@click.option("--limit-s", envvar="READY_LIMIT_S", type=float, default=1800.0, show_default=True,
              help="How long it may load.")  # fmt: skip
@click.option("--poll-s", type=float, default=POLL_S, hidden=True)
def judge(url: str, key: str, limit_s: float, poll_s: float) -> None:
    """Wait until the server at the tunnel's end is ready, and hold it to what is known."""
    server = Server(url, key=key)
    problem = wait_until_ready(server, limit_s, click.echo, poll_s)
    problems = [problem] if problem else list(smoke(server))
    for each in problems:
        click.echo(each, err=True)
    if not problems:
        click.echo("it is ready and answers what is known")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
