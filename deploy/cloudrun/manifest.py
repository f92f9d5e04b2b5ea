"""The manifest of a revision: a file of this folder, filled in, with volumes and traffic added."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

import yaml

from deploy.cloudrun.target import Target

FOLDER = Path(__file__).parent
FILES = {"single": FOLDER / "service.yaml", "sidecars": FOLDER / "service-sidecars.yaml"}
CANDIDATE = "candidate"
WEIGHTS = "/weights"
KEYS = "/etc/structured-server/keys"


def filled_in(target: Target, revision: str) -> dict[str, str]:
    """Return what stands for each name in the files."""
    model = f"{WEIGHTS}/{target.model.rpartition('/')[2]}" if target.bucket else target.model
    return {
        "PROJECT": target.project,
        "SERVICE": target.service,
        "REVISION": revision,
        "SERVICE_ACCOUNT": target.account,
        "MIN_INSTANCES": str(target.min_instances),
        "MAX_INSTANCES": str(target.max_instances),
        "CONCURRENCY": str(target.requests_at_once),
        "GPU": target.machine.gpu,
        "CPU": str(target.machine.cpu),
        "MEMORY": target.machine.memory,
        "IMAGE": target.image,
        "PROXY_IMAGE": target.proxy_image,
        "ENGINE_IMAGE": target.engine_image,
        "COLLECTOR_IMAGE": target.collector_image,
        "MONITORING_SECRET": target.monitoring_secret,
        "MODEL": model,
        "TOKENIZER": target.tokenizer or model,
        "LOAD_STRATEGY": "prefetch" if target.bucket else "",
        "OFFLINE": "1" if target.bucket else "0",
        "KEYS_FILE": f"{KEYS}/keys.yaml" if target.keys_secret else "",
    }


def manifest(target: Target, revision: str, serving: str | None) -> dict[str, Any]:
    """Return the service with a new revision as its candidate.

    All traffic stays with the revision that is `serving`; where there is none, the new one has it.
    """
    return complete(FILES[target.layout].read_text(encoding="utf-8"), target, revision, serving)


def complete(text: str, target: Target, revision: str, serving: str | None) -> dict[str, Any]:
    """Return what the text of a manifest comes to."""
    service: dict[str, Any] = yaml.safe_load(Template(text).substitute(filled_in(target, revision)))
    spec = service["spec"]["template"]["spec"]
    containers = {each["name"]: each for each in spec["containers"]}
    proxy = containers.get("proxy") or containers["server"]
    engine = containers.get("engine") or containers["server"]
    if target.keys_secret:
        items = [{"key": "latest", "path": "keys.yaml"}]
        _mount(spec, {"name": "keys", "secret": {"secretName": target.keys_secret, "items": items}})
        proxy.setdefault("volumeMounts", []).append({"name": "keys", "mountPath": KEYS})
    if target.hf_secret:
        source = {"secretKeyRef": {"name": target.hf_secret, "key": "latest"}}
        engine["env"].append({"name": "HF_TOKEN", "valueFrom": source})
    if target.bucket:
        attributes = {"bucketName": target.bucket, "mountOptions": "enable-buffered-read=true"}
        csi = {"driver": "gcsfuse.run.googleapis.com", "readOnly": True, "volumeAttributes": attributes}
        _mount(spec, {"name": "weights", "csi": csi})
        for container in {id(each): each for each in (proxy, engine)}.values():
            container.setdefault("volumeMounts", []).append({"name": "weights", "mountPath": WEIGHTS})
    new = {"revisionName": revision, "percent": 0 if serving else 100, "tag": CANDIDATE}
    old = [{"revisionName": serving, "percent": 100}] if serving else []
    service["spec"]["traffic"] = [*old, new]
    return service


def _mount(spec: dict[str, Any], volume: dict[str, Any]) -> None:
    spec.setdefault("volumes", []).append(volume)
