"""What the machine is told at its first start: units and files for cloud-init. Nothing of it is secret."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

import yaml

from deploy.gce.machine import Target

FOLDER = Path(__file__).parent
UNITS = ("structured-server-gpu.service", "structured-server.service")
SCRIPT = "fetch-secrets.sh"
PLACE = "/etc/structured-server"


def units(target: Target) -> dict[str, str]:
    """Return the systemd units, by name, filled in."""
    values = {
        "PROJECT": target.project,
        "HF_SECRET": target.hf_secret,
        "KEYS_SECRET": target.keys_secret,
        "IMAGE": target.image,
        "REGISTRY": target.registry,
        "DEVICES": " ".join(f"--device=/dev/nvidia{number}" for number in range(target.machine.gpus)),
    }
    return {name: Template((FOLDER / name).read_text("utf-8")).substitute(values) for name in UNITS}


def environment(target: Target) -> dict[str, str]:
    """Return the container's variables: docs/image.md says what each is."""
    found = {
        "ENGINE_MODEL": target.model or target.machine.model,
        "ENGINE_TENSOR_PARALLEL": str(target.machine.gpus),
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
        "STRUCTURED_SERVER_GCP_PROJECT": target.project,
        "STRUCTURED_SERVER_DEAD_AFTER_S": "120",
    }
    if target.keys_secret:
        found["STRUCTURED_SERVER_API_KEYS_FILE"] = f"{PLACE}/keys/keys.yaml"
    return found


def user_data(target: Target) -> str:
    """Return the machine's `user-data`."""
    variables = "".join(f"{name}={value}\n" for name, value in environment(target).items())
    files = [
        *(_file(f"/etc/systemd/system/{name}", text) for name, text in units(target).items()),
        _file(f"{PLACE}/{SCRIPT}", (FOLDER / SCRIPT).read_text("utf-8"), "0755"),
        _file(f"{PLACE}/server.env", variables),
    ]
    said = {
        "write_files": files,
        "runcmd": ["systemctl daemon-reload", "systemctl start --no-block structured-server.service"],
    }
    return "#cloud-config\n" + yaml.safe_dump(said, sort_keys=False, width=1000)


def _file(path: str, text: str, mode: str = "0644") -> dict[str, Any]:
    return {"path": path, "owner": "root:root", "permissions": mode, "content": text}
