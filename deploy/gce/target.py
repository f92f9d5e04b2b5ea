"""Where to deploy what: all that differs between two deployments, in one value."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
_REPOSITORY = re.compile(r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/(?P<name>[^/]+)/.+")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with its GPUs, and the model that fits them."""

    kind: str
    gpus: int
    model: str
    disk_gb: int  # the system, the image, and the weights


MACHINES = {
    # One L4 of 24 GB; the weights are 17.2 GB.
    "4": Machine("g2-standard-8", 1, "cyankiwi/diffusiongemma-26B-A4B-it-AWQ-INT4", 150),
    # One A100 of 40 GB; about 26 GB.
    "8": Machine("a2-highgpu-1g", 1, "RedHatAI/diffusiongemma-26B-A4B-it-FP8-dynamic", 150),
    # Two of these; about 52 GB, which one does not hold.
    "16": Machine("a2-highgpu-2g", 2, "google/diffusiongemma-26B-A4B-it", 200),
}
"""By the bits of a weight."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of Artifact Registry."""

    location: str
    project: str
    name: str

    @property
    def path(self) -> str:
        """Its full name, which holds in whatever project a command runs."""
        return f"projects/{self.project}/locations/{self.location}/repositories/{self.name}"


@dataclass(frozen=True, slots=True)
class Target:
    """One machine in one zone of one project. Of secrets it knows the names only.

    Raises:
        ValueError: the name is none for a machine and an account, or a value has more than one line.
    """

    project: str
    zone: str
    image: str = ""
    machine: Machine = MACHINES["4"]
    name: str = "structured-server-vm"
    model: str = ""  # "" for the machine's
    revision: str = ""
    tokenizer: str = ""  # "" for the model's own
    engine_args: str = ""
    hf_secret: str = ""
    keys_secret: str = ""
    system: str = "common-cu129-ubuntu-2204-nvidia-580"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} is no name for a machine: 6 to 30 small letters, digits and hyphens."
            )
        if several := [value for value in self._settings() if len(value.splitlines()) > 1]:
            raise ValueError(f"a setting has one line: {several[0]!r}.")

    def _settings(self) -> tuple[str, ...]:
        return (self.image, self.model, self.revision, self.tokenizer, self.engine_args, *self.secrets)

    @property
    def region(self) -> str:
        """The region of the zone."""
        return self.zone.rpartition("-")[0]

    @property
    def account(self) -> str:
        """The service account that the machine has, and nothing else does."""
        return f"{self.name}@{self.project}.iam.gserviceaccount.com"

    @property
    def secrets(self) -> tuple[str, ...]:
        """All secrets that the machine reads."""
        return tuple(name for name in (self.hf_secret, self.keys_secret) if name)

    @property
    def repository(self) -> Repository | None:
        """Where the image lies, None where it is not in Artifact Registry."""
        found = _REPOSITORY.fullmatch(self.image)
        return Repository(**found.groupdict()) if found else None
