"""Which machine serves which precision, and all that differs between two deployments."""

from __future__ import annotations

from dataclasses import dataclass

BOOT_FAMILY = "cos-stable"
BOOT_PROJECT = "cos-cloud"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type with its GPUs, and the model that fits them."""

    kind: str
    gpus: int
    disk_gb: int  # the image, the weights, and as much again
    model: str


MACHINES = {
    "4": Machine("g2-standard-8", 1, 100, "cyankiwi/diffusiongemma-26B-A4B-it-AWQ-INT4"),
    "8": Machine("a2-highgpu-1g", 1, 150, "RedHatAI/diffusiongemma-26B-A4B-it-FP8-dynamic"),
    "16": Machine("a2-highgpu-2g", 2, 200, "google/diffusiongemma-26B-A4B-it"),
}
"""By bits of a weight: one L4 with 24 GB, one A100 with 40 GB, two of them."""


@dataclass(frozen=True, slots=True)
class Target:
    """One machine in one zone of one project. Of secrets it knows the names only."""

    project: str
    zone: str
    image: str
    machine: Machine
    name: str = "structured-server"
    network: str = "default"
    model: str = ""  # "" for the machine's
    hf_secret: str = ""
    keys_secret: str = ""
    external_address: bool = False

    @property
    def account(self) -> str:
        """The service account that the machine runs as, and nothing else does."""
        return f"{self.name}-vm@{self.project}.iam.gserviceaccount.com"

    @property
    def firewall_rule(self) -> str:
        """The rule that lets Identity-Aware Proxy reach the machine's SSH port, and nobody else."""
        return f"{self.name}-iap-ssh"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of all secrets that the machine reads."""
        return tuple(filter(None, (self.hf_secret, self.keys_secret)))

    @property
    def registry(self) -> str:
        """The host that the image comes from."""
        return self.image.partition("/")[0]


EXAMPLE = Target(
    project="example-project",
    zone="europe-west4-a",
    image="europe-west4-docker.pkg.dev/example-project/images/structured-server:gpu",
    machine=MACHINES["16"],
    hf_secret="hf-token",  # noqa: S106  a name
    keys_secret="structured-server-keys",  # noqa: S106  likewise
)
"""What the checks of the units fill in."""
