"""The machine: what its metadata hold. Of secrets they hold names; the machine fetches the secrets itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.gce.pieces import Piece
from deploy.gce.target import Target

FOLDER = Path(__file__).parent
UNIT = "structured-server.service"
SECRETS = "/run/secrets"
"""Where the container finds them."""
DRAIN_S = 8  # of requests in flight: as long as one may take
PROXY_STOP_S = 10  # the unit's stop times are longer than this and the engine's two seconds


def piece(target: Target, metadata: str) -> Piece:
    """Return the machine, with what `--metadata-from-file` says."""
    return Piece(
        ("compute", "instances"),
        target.name,
        (f"--zone={target.zone}",),
        (
            f"--machine-type={target.machine.kind}",
            f"--image-family={target.system}",
            "--image-project=deeplearning-platform-release",
            f"--boot-disk-size={target.machine.disk_gb}GB",
            "--boot-disk-type=pd-balanced",
            "--maintenance-policy=TERMINATE",  # a machine with a GPU cannot be moved
            "--restart-on-failure",
            f"--subnet={target.name}",
            "--no-address",
            f"--service-account={target.account}",
            "--scopes=cloud-platform",  # its roles are the limit
            "--no-deletion-protection",
            "--labels=app=structured-server",
            "--metadata=enable-oslogin=TRUE,install-nvidia-driver=True",
            metadata,
        ),
    )


def metadata(target: Target) -> dict[str, str]:
    """Return what the machine starts from, by key."""
    return {
        "startup-script": (FOLDER / "startup.sh").read_text(encoding="utf-8"),
        "structured-server-unit": (FOLDER / UNIT).read_text(encoding="utf-8"),
        "structured-server-prepare": (FOLDER / "prepare.sh").read_text(encoding="utf-8"),
        "structured-server-machine": _lines(_for_the_machine(target)),
        "structured-server-container": _lines(_for_the_container(target)),
    }


def _for_the_machine(target: Target) -> dict[str, str]:
    return {
        "IMAGE": target.image,
        "PROJECT": target.project,
        "HF_SECRET": target.hf_secret,
        "KEYS_SECRET": target.keys_secret,
    }


def _for_the_container(target: Target) -> dict[str, str]:
    wanted = {
        "ENGINE_MODEL": target.model or target.machine.model,
        "ENGINE_REVISION": target.revision,
        "ENGINE_TENSOR_PARALLEL": str(target.machine.gpus),
        "ENGINE_ARGS": target.engine_args,
        "PROXY_STOP_S": str(PROXY_STOP_S),
        "STRUCTURED_SERVER_DRAIN_S": str(DRAIN_S),
        "STRUCTURED_SERVER_TOKENIZER": target.tokenizer,
        "STRUCTURED_SERVER_GCP_PROJECT": target.project,
        "STRUCTURED_SERVER_API_KEYS_FILE": f"{SECRETS}/keys.yaml" if target.keys_secret else "",
        "HF_TOKEN_PATH": f"{SECRETS}/hf-token" if target.hf_secret else "",
    }
    return {name: value for name, value in wanted.items() if value}


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


@contextmanager
def as_files(values: Mapping[str, str]) -> Iterator[str]:
    """Write metadata to files, and give the flag that names them."""
    with TemporaryDirectory() as folder:
        for name, value in values.items():
            (Path(folder) / name).write_text(value, encoding="utf-8")
        yield "--metadata-from-file=" + ",".join(f"{name}={folder}/{name}" for name in values)
