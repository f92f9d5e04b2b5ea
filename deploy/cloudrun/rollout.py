"""A new revision without an outage: candidate, readiness, known answers, then traffic. And the way back."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import Any

import click
import yaml

from deploy.cloudrun.candidate import Server, smoke, wait_until_ready
from deploy.cloudrun.manifest import CANDIDATE, FOLDER, manifest
from deploy.cloudrun.target import Target
from deploy.gcloud import Gcloud

ACCESSOR = "roles/secretmanager.secretAccessor"


class CandidateFailed(click.ClickException):
    """The new revision is not fit to serve. It has no traffic, unless there was nothing before it."""


def prepare(target: Target, gcloud: Gcloud) -> None:
    """Make what a revision needs and is not there: its account with its roles, and the collector's secret."""
    account, region = target.account, target.region
    if gcloud.look("iam", "service-accounts", "describe", account) is None:
        gcloud.do("iam", "service-accounts", "create", target.service, "--display-name=Structured decisions")
    if target.layout == "sidecars":
        name = target.monitoring_secret
        if gcloud.look("secrets", "describe", name) is None:
            file = str(FOLDER / "run-monitoring.yaml")
            gcloud.do("secrets", "create", name, f"--data-file={file}", f"--locations={region}",
                      "--replication-policy=user-managed")  # fmt: skip
        gcloud.do("projects", "add-iam-policy-binding", target.project,
                  f"--member=serviceAccount:{account}", "--role=roles/monitoring.metricWriter",
                  "--condition=None")  # fmt: skip
    for name in target.secrets:
        gcloud.do("secrets", "add-iam-policy-binding", name, f"--member=serviceAccount:{account}",
                  f"--role={ACCESSOR}")  # fmt: skip
    if target.bucket:
        gcloud.do("storage", "buckets", "add-iam-policy-binding", f"gs://{target.bucket}",
                  f"--member=serviceAccount:{account}", "--role=roles/storage.objectViewer")  # fmt: skip


def deploy(target: Target, gcloud: Gcloud, *, limit_s: float, poll_s: float, key: str) -> None:
    """Bring a new revision up beside the serving one, judge it, and give it the traffic.

    Raises:
        GcloudFailed: a command fails.
        CandidateFailed: it does not become ready, or does not answer what is known.
    """
    prepare(target, gcloud)
    serving = serving_revision(described(target, gcloud))
    revision = f"{target.service}-{secrets.token_hex(4)}"
    text = yaml.safe_dump(manifest(target, revision, serving), sort_keys=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "service.yaml"
        file.write_text(text, encoding="utf-8")
        gcloud.do("run", "services", "replace", str(file), f"--region={target.region}")
    if not gcloud.act:
        click.echo(text)
        click.echo(f"would wait for /ready of {revision}, ask what is known, and then run:")
    else:
        judge(target, gcloud, limit_s=limit_s, poll_s=poll_s, key=key, serving=serving)
    if serving:
        shift(target, gcloud, revision)
        click.echo(f"{revision} serves; {serving} did before: `make cloudrun-rollback` goes back to it.")


def judge(
    target: Target, gcloud: Gcloud, *, limit_s: float, poll_s: float, key: str, serving: str | None
) -> None:
    """Wait until the candidate is ready, and hold it to what is known.

    Raises:
        CandidateFailed: one of the two fails.
    """
    url = tagged_url(described(target, gcloud))
    if url is None:
        raise CandidateFailed(f"the service has no revision tagged {CANDIDATE}.")
    server = Server(url, gcloud.token, key)
    click.echo(f"waiting for {url}/ready, up to {limit_s:.0f} s")
    problem = wait_until_ready(server, limit_s, click.echo, poll_s)
    problems = [problem] if problem else list(smoke(server))
    if problems:
        stays = (
            f"All traffic stays with {serving}." if serving else "It is the first revision, so it is served."
        )
        raise CandidateFailed(
            "the candidate is not fit to serve: "
            + "; ".join(problems)
            + f". {stays} Its log: gcloud run services logs read {target.service} "
            + f"--region={target.region} --project={target.project}"
        )
    click.echo("the candidate is ready and answers what is known")


def shift(target: Target, gcloud: Gcloud, revision: str) -> None:
    """Give one revision all traffic."""
    gcloud.do("run", "services", "update-traffic", target.service, f"--region={target.region}",
              f"--to-revisions={revision}=100")  # fmt: skip


def roll_back(target: Target, gcloud: Gcloud) -> None:
    """Give the traffic back to the newest ready revision before the serving one.

    Raises:
        CandidateFailed: there is none.
    """
    serving = serving_revision(described(target, gcloud))
    found = gcloud.look("run", "revisions", "list", f"--service={target.service}",
                        f"--region={target.region}") or []  # fmt: skip
    found.sort(key=lambda each: str(each["metadata"]["creationTimestamp"]), reverse=True)
    names = [each["metadata"]["name"] for each in found if _is_ready(each)]
    before = names[names.index(serving) + 1 :] if serving in names else []
    if not before:
        raise CandidateFailed(f"there is no ready revision before {serving}.")
    shift(target, gcloud, before[0])


def tear_down(target: Target, gcloud: Gcloud) -> None:
    """Delete the service and what was made for it. Bucket, image and secrets of others stay."""
    if gcloud.look("run", "services", "describe", target.service, f"--region={target.region}"):
        gcloud.do("run", "services", "delete", target.service, f"--region={target.region}")
    if gcloud.look("secrets", "describe", target.monitoring_secret):
        gcloud.do("secrets", "delete", target.monitoring_secret)
    if gcloud.look("iam", "service-accounts", "describe", target.account):
        gcloud.do("iam", "service-accounts", "delete", target.account)


def described(target: Target, gcloud: Gcloud) -> dict[str, Any] | None:
    """Return the service as it is, None where there is none."""
    found: dict[str, Any] | None = gcloud.look(
        "run", "services", "describe", target.service, f"--region={target.region}"
    )
    return found


def serving_revision(service: dict[str, Any] | None) -> str | None:
    """Return the revision that has the most traffic."""
    traffic = (service or {}).get("status", {}).get("traffic", ())
    shares = [each for each in traffic if each.get("percent")]
    return str(max(shares, key=_share)["revisionName"]) if shares else None


def tagged_url(service: dict[str, Any] | None, tag: str = CANDIDATE) -> str | None:
    """Return the URL of the revision with a tag."""
    traffic = (service or {}).get("status", {}).get("traffic", ())
    return next((str(each["url"]) for each in traffic if each.get("tag") == tag and "url" in each), None)


def _share(target: dict[str, Any]) -> int:
    return int(target["percent"])


def _is_ready(revision: dict[str, Any]) -> bool:
    conditions: list[dict[str, Any]] = revision.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
