"""Where to deploy what: all that differs between two deployments, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layout = Literal["single", "sidecars"]


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU of Cloud Run, with the CPU and memory that go with it."""

    gpu: str
    cpu: int
    memory: str
    quota: str  # the name of its quota


L4 = Machine("nvidia-l4", 8, "32Gi", "NvidiaL4GpuAllocNoZonalRedundancyPerProjectRegion")
RTX_PRO_6000 = Machine(
    "nvidia-rtx-pro-6000", 20, "80Gi", "NvidiaRtxPro6000GpuAllocNoZonalRedundancyPerProjectRegion"
)
MACHINES = {"l4": L4, "rtx-pro-6000": RTX_PRO_6000}


@dataclass(frozen=True, slots=True)
class Target:
    """One service in one region of one project. Of secrets it knows the names only."""

    project: str
    region: str
    image: str
    service: str = "structured-server"
    layout: Layout = "single"
    machine: Machine = L4
    model: str = "cyankiwi/diffusiongemma-26B-A4B-it-AWQ-INT4"
    tokenizer: str = ""  # "" for the model's own
    bucket: str = ""  # weights come from here, mounted read-only, and not from the hub
    hf_secret: str = ""
    keys_secret: str = ""
    proxy_image: str = ""
    engine_image: str = ""
    collector_image: str = (
        "us-docker.pkg.dev/cloud-ops-agents-artifacts/cloud-run-gmp-sidecar/cloud-run-gmp-sidecar:1.2.0"
    )
    min_instances: int = 0
    max_instances: int = 1
    concurrency: int = 0  # 0 for what goes with the number of instances

    @property
    def account(self) -> str:
        """The service account that the service runs as, and nothing else does."""
        return f"{self.service}@{self.project}.iam.gserviceaccount.com"

    @property
    def requests_at_once(self) -> int:
        """Requests that the platform sends to one instance at a time.

        To a single instance all that it allows, so that the queue answers those that are too many, with
        `Retry-After`; to one of several hardly more than it reads, so that another one is started.
        """
        return self.concurrency or (1000 if self.max_instances == 1 else 20)

    @property
    def monitoring_secret(self) -> str:
        """The secret that holds what the collector scrapes."""
        return f"{self.service}-monitoring"

    @property
    def secrets(self) -> tuple[str, ...]:
        """All secrets that the service reads."""
        monitoring = (self.monitoring_secret,) if self.layout == "sidecars" else ()
        return tuple(name for name in (self.hf_secret, self.keys_secret, *monitoring) if name)


EXAMPLE = Target(
    project="example-project",
    region="europe-west4",
    image="europe-west4-docker.pkg.dev/example-project/images/structured-server:gpu",
    proxy_image="europe-west4-docker.pkg.dev/example-project/images/structured-server:proxy",
    engine_image="docker.io/vllm/vllm-openai:v0.32.0-cu129",
    keys_secret="structured-server-keys",  # noqa: S106  a name
    hf_secret="hf-token",  # noqa: S106  likewise
    bucket="example-weights",
)
"""What the checks of the manifests fill in."""
