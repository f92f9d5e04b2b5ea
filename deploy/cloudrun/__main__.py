"""`python -m deploy.cloudrun`: every command shows what it would do, and does it with --yes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from deploy.cloudrun import rollout
from deploy.cloudrun.doctor import findings
from deploy.cloudrun.target import MACHINES, Target
from deploy.gcloud import Gcloud, Hints
from deploy.judging import POLL_S

_HINTS: Hints = (
    ("SERVICE_DISABLED", "Turn the API on: `make cloudrun-doctor` names the command."),
    ("has not been used in project", "Turn the API on: `make cloudrun-doctor` names the command."),
    ("PERMISSION_DENIED", "A role is missing: `make cloudrun-doctor` names it."),
    ("does not have permission", "A role is missing: `make cloudrun-doctor` names it."),
)

_OPTIONS = (
    click.option("--project", envvar="PROJECT", required=True, help="The Google Cloud project."),
    click.option(
        "--region", envvar="REGION", required=True, help="A region with the GPU, e.g. europe-west4."
    ),
    click.option("--service", envvar="SERVICE", default="structured-server", show_default=True),
    click.option("--image", envvar="IMAGE", default="", help="The image with proxy and engine."),
    click.option("--layout", envvar="LAYOUT", type=click.Choice(["single", "sidecars"]), default="single"),
    click.option("--machine", envvar="MACHINE", type=click.Choice(list(MACHINES)), default="l4"),
    click.option("--model", envvar="MODEL", default=Target.__dataclass_fields__["model"].default),
    click.option("--tokenizer", envvar="TOKENIZER", default="", help="Where not the model's own."),
    click.option(
        "--bucket", envvar="BUCKET", default="", help="Weights come from here and not from the hub."
    ),
    click.option("--hf-secret", envvar="HF_SECRET", default="", help="The secret with the hub's token."),
    click.option("--keys-secret", envvar="KEYS_SECRET", default="", help="The secret with the keys file."),
    click.option("--proxy-image", envvar="PROXY_IMAGE", default="", help="For --layout sidecars."),
    click.option("--engine-image", envvar="ENGINE_IMAGE", default="", help="Likewise."),
    click.option("--min-instances", envvar="MIN_INSTANCES", type=int, default=0, show_default=True),
    click.option("--max-instances", envvar="MAX_INSTANCES", type=int, default=1, show_default=True),
    click.option(
        "--concurrency", envvar="CONCURRENCY", type=int, default=0, help="0: 1000 for one instance, else 20."
    ),
    click.option(
        "--yes", "act", is_flag=True, envvar="YES", help="Do it, in place of showing what it would be."
    ),
)


def _on_target(command: Callable[..., None]) -> Callable[..., None]:
    def run(project: str, act: bool, machine: str, **values: Any) -> None:
        more = {name: values.pop(name) for name in ("limit_s", "poll_s", "key", "source") if name in values}
        target = Target(project=project, machine=MACHINES[machine], **values)
        if target.layout == "sidecars" and not (target.proxy_image and target.engine_image):
            raise click.UsageError("--layout sidecars needs --proxy-image and --engine-image.")
        command(target, Gcloud(project, act=act, hints=_HINTS), **more)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    wrapped: Callable[..., None] = run
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


_JUDGED = (
    click.option("--limit-s", envvar="READY_LIMIT_S", type=float, default=1800.0, show_default=True,
                 help="How long the candidate may load."),
    click.option("--poll-s", type=float, default=POLL_S, hidden=True),
    click.option("--key", envvar="API_KEY", default="", help="An API key, where the server asks for one."),
)  # fmt: skip


def _judged(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_JUDGED):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Deploy to Cloud Run with one GPU. docs/deploy-cloudrun.md is the guide."""


@main.command(epilog="\b\nExample:\n  make cloudrun-doctor PROJECT=p REGION=europe-west4")
@_on_target
def doctor(target: Target, gcloud: Gcloud) -> None:
    """Say what stands in the way, with the command that mends it. Exit code 1 if anything does."""
    wrong = 0
    for name, problem in findings(target, gcloud):
        click.echo(f"{'wrong' if problem else 'ok':5}  {name}{': ' + problem if problem else ''}")
        wrong += bool(problem)
    sys.exit(1 if wrong else 0)


@main.command(epilog="\b\nExample:\n  make cloudrun-deploy PROJECT=p REGION=europe-west4 IMAGE=... YES=1")
@_judged
@_on_target
def deploy(target: Target, gcloud: Gcloud, limit_s: float, poll_s: float, key: str) -> None:
    """Bring up a candidate beside what serves, wait, ask it what is known, and only then shift traffic."""
    if target.layout == "single" and not target.image:
        raise click.UsageError("--image is missing: build and push one (docs/image.md).")
    rollout.deploy(target, gcloud, limit_s=limit_s, poll_s=poll_s, key=key)


@main.command(epilog="\b\nExample:\n  make cloudrun-smoke PROJECT=p REGION=europe-west4")
@_judged
@_on_target
def smoke(target: Target, gcloud: Gcloud, limit_s: float, poll_s: float, key: str) -> None:
    """Wait until the candidate is ready, and hold it to what is known. Nothing is changed."""
    serving = rollout.serving_revision(rollout.described(target, gcloud))
    rollout.judge(target, gcloud, limit_s=limit_s, poll_s=poll_s, key=key, serving=serving)


@main.command(epilog="\b\nExample:\n  make cloudrun-rollback PROJECT=p REGION=europe-west4 YES=1")
@_on_target
def rollback(target: Target, gcloud: Gcloud) -> None:
    """Give the traffic back to the revision before."""
    rollout.roll_back(target, gcloud)


@main.command(epilog="\b\nExample:\n  make cloudrun-teardown PROJECT=p REGION=europe-west4 YES=1")
@_on_target
def teardown(target: Target, gcloud: Gcloud) -> None:
    """Delete the service, its account, and the secret that was made for it."""
    rollout.tear_down(target, gcloud)


@main.command(
    "stage-weights", epilog="\b\nExample:\n  make cloudrun-stage-weights ... BUCKET=b SOURCE=./model YES=1"
)
@click.option("--source", envvar="SOURCE", required=True, type=click.Path(exists=True, file_okay=False),
              help="A folder with the model, e.g. of `hf download MODEL --local-dir FOLDER`.")  # fmt: skip
@_on_target
def stage_weights(target: Target, gcloud: Gcloud, source: str) -> None:
    """Copy a model into the bucket, making the bucket in the service's region if it is not there."""
    if not target.bucket:
        raise click.UsageError("--bucket is missing.")
    if gcloud.look("storage", "buckets", "describe", f"gs://{target.bucket}") is None:
        gcloud.do("storage", "buckets", "create", f"gs://{target.bucket}", f"--location={target.region}",
                  "--uniform-bucket-level-access", "--public-access-prevention")  # fmt: skip
    name = target.model.rpartition("/")[2]
    gcloud.do("storage", "rsync", "--recursive", source, f"gs://{target.bucket}/{name}")


if __name__ == "__main__":
    main()
