"""What stands in the way of a deployment, each with the command that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from deploy.cloudrun.target import Target
from deploy.gcloud import Gcloud, GcloudFailed

APIS = ("run.googleapis.com", "artifactregistry.googleapis.com", "secretmanager.googleapis.com")
DEPLOYER_ROLES = ("roles/run.admin", "roles/iam.serviceAccountUser")
OWNING = ("roles/owner", "roles/editor")


def findings(target: Target, gcloud: Gcloud) -> Iterator[tuple[str, str]]:
    """Yield each check's name with what is wrong, "" for nothing."""
    checks: tuple[tuple[str, Callable[[Target, Gcloud], str]], ...] = (
        ("login", _login),
        ("project", _project),
        ("APIs", _apis),
        ("roles", _roles),
        ("GPU quota", _quota),
        ("image", _image),
        ("bucket", _bucket),
        ("secrets", _secrets),
        ("identity token", _token),
    )
    for name, check in checks:
        try:
            yield name, check(target, gcloud)
        except GcloudFailed as error:
            yield name, error.message
        if name == "login" and not _account(gcloud):
            return


def _account(gcloud: Gcloud) -> str:
    accounts: list[dict[str, Any]] = gcloud.look("auth", "list", "--filter=status:ACTIVE") or []
    return str(accounts[0]["account"]) if accounts else ""


def _login(_: Target, gcloud: Gcloud) -> str:
    return "" if _account(gcloud) else "nobody is logged in: gcloud auth login"


def _project(target: Target, gcloud: Gcloud) -> str:
    if gcloud.look("projects", "describe", target.project) is None:
        return f"there is no project {target.project}, or it cannot be seen: gcloud projects list"
    return ""


def _apis(target: Target, gcloud: Gcloud) -> str:
    on = {each["config"]["name"] for each in gcloud.look("services", "list", "--enabled") or []}
    off = [name for name in APIS if name not in on]
    return f"off: gcloud services enable {' '.join(off)} --project={target.project}" if off else ""


def _roles(target: Target, gcloud: Gcloud) -> str:
    member = _account(gcloud)
    member = f"serviceAccount:{member}" if member.endswith(".gserviceaccount.com") else f"user:{member}"
    policy = gcloud.look("projects", "get-iam-policy", target.project) or {}
    has = {each["role"] for each in policy.get("bindings", ()) if member in each["members"]}
    if has.intersection(OWNING):
        return ""
    return "; ".join(
        f"{role} is missing (a group may give it): gcloud projects add-iam-policy-binding {target.project} "
        f"--member={member} --role={role}"
        for role in DEPLOYER_ROLES
        if role not in has
    )


def _quota(target: Target, gcloud: Gcloud) -> str:
    name = target.machine.quota
    said = gcloud.look("beta", "quotas", "info", "describe", name, "--service=run.googleapis.com")
    for each in (said or {}).get("dimensionsInfos", ()):
        places = each.get("applicableLocations") or [each.get("dimensions", {}).get("region")]
        if target.region in places and int(each.get("details", {}).get("value", 0)) >= target.max_instances:
            return ""
    return (
        f"{target.region} grants this project too few {target.machine.gpu} ({name} is below "
        f"{target.max_instances}): ask for more at https://console.cloud.google.com/iam-admin/quotas"
        f"?project={target.project}, or take another region"
    )


def _image(target: Target, gcloud: Gcloud) -> str:
    if "-docker.pkg.dev/" not in target.image:
        return ""  # elsewhere, where nobody can look from here
    if gcloud.look("artifacts", "docker", "images", "describe", target.image) is None:
        return f"there is no {target.image}: build and push it (docs/image.md)"
    return ""


def _bucket(target: Target, gcloud: Gcloud) -> str:
    if not target.bucket:
        return ""
    found = gcloud.look("storage", "buckets", "describe", f"gs://{target.bucket}")
    if found is None:
        return f"there is no bucket {target.bucket}: make cloudrun-stage-weights"
    location = str(found["location"]).lower()
    if location != target.region:
        return f"the bucket is in {location}: loading from {target.region} is slow and is paid for"
    return ""


def _secrets(target: Target, gcloud: Gcloud) -> str:
    made_here = {target.monitoring_secret}
    return "; ".join(
        f"there is no secret {name}: gcloud secrets create {name} --data-file=FILE --project={target.project}"
        for name in target.secrets
        if name not in made_here and gcloud.look("secrets", "describe", name) is None
    )


def _token(_: Target, gcloud: Gcloud) -> str:
    gcloud.token()
    return ""
