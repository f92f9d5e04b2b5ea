"""The real Dockerfile, built by buildah on a stub base, and the real entrypoint run in it.

Slow, so it runs by `make image-test` only, as root, with buildah and debootstrap from Debian's packages.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.deploy.test_entrypoint import ASKED, ROOT
from tests.engine.server import free_port

pytestmark = pytest.mark.skipif(
    os.environ.get("IMAGE_TEST") != "1", reason="builds images: run `make image-test`"
)

BASE = "localhost/structured-server-test-base"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
VLLM = """#!/bin/sh
cd /repo && PYTHONPATH=/repo exec /opt/proxy/bin/python -m tests.deploy.fake_vllm "$@"
"""
PROXY = ("/opt/proxy/bin/structured-server", "serve")
ENGINE = ("-m", "tests.deploy.fake_vllm", "serve")
CERTIFICATES = "/etc/ssl/certs"
"""Of this machine, for the registries that the builder asks; they are not part of the image."""


def buildah(*arguments: str, limit_s: float = 600) -> str:
    """Run buildah, and return its output."""
    done = subprocess.run(
        [shutil.which("buildah") or "buildah", "--storage-driver", "vfs", *arguments],
        capture_output=True,
        text=True,
        timeout=limit_s,
        env=os.environ | {"BUILDAH_ISOLATION": "chroot"},
    )
    assert 0 == done.returncode, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A base image with Python and a fake vllm, and with an entrypoint that must not survive."""
    assert shutil.which("buildah"), "apt-get install buildah"
    assert shutil.which("debootstrap"), "apt-get install debootstrap"
    root = tmp_path_factory.mktemp("base") / "root"
    subprocess.run(
        [shutil.which("debootstrap") or "", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root],
        check=True,
        capture_output=True,
        timeout=600,
    )
    (root / "usr/local/bin/vllm").write_text(VLLM)
    (root / "usr/local/bin/vllm").chmod(0o755)
    container = buildah("from", "scratch")
    buildah("add", "--quiet", container, str(root), "/")
    buildah("config", "--entrypoint", '["vllm", "serve"]', container)
    buildah("commit", "--quiet", container, BASE)
    buildah("rm", container)
    shutil.rmtree(root)
    return BASE


def build(base: str, target: str) -> str:
    """Build one target, and return the image's name."""
    name = f"localhost/structured-server-test:{target}"
    buildah(
        "build",
        *("--target", target, "--tag", name, "--isolation", "chroot", "--layers=false"),
        *("--build-arg", f"VLLM_IMAGE={base}", "--build-arg", f"PYTHON_IMAGE={base}"),
        *("--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"),
        str(ROOT),
        limit_s=1200,
    )
    return name


@pytest.fixture(scope="module")
def gpu_image(base: str) -> str:
    """The image with proxy and engine."""
    return build(base, "gpu")


class Container:
    """A container that runs what its image says it runs."""

    def __init__(self, image: str, *arguments: str, **variables: str) -> None:
        self.name = buildah("from", image)
        config = json.loads(buildah("inspect", self.name))["OCIv1"]["config"]
        self.config = config
        self.port = free_port()
        given = {"PORT": str(self.port), "STRUCTURED_SERVER_PORT": str(self.port), **variables}
        command = [*config["Entrypoint"], *(arguments or config.get("Cmd") or ())]
        self.process = subprocess.Popen(
            [
                *("buildah", "--storage-driver", "vfs", "run", "--isolation", "chroot"),
                *("--network", "host", "--volume", f"{ROOT}:/repo:ro"),
                *(part for name, value in given.items() for part in ("--env", f"{name}={value}")),
                *(self.name, "--", *command),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def status(self, path: str) -> int | None:
        """Return a status of the proxy's, None where nothing listens."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=5).status_code
        except httpx.TransportError:
            return None

    def wait_for(self, path: str, status: int, limit_s: float = 60) -> float:
        """Wait until a path has this status, and return how long that took."""
        begun = time.monotonic()
        while self.status(path) != status:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < begun + limit_s
            time.sleep(0.02)
        return time.monotonic() - begun

    def pid_of(self, *words: str) -> int:
        """Return the process in the container whose command line has all these words."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes().decode().split("\0")
                environ = (folder / "environ").read_bytes()
            except OSError:
                continue
            # A script's interpreter stands before its name.
            runs = any(line[start : start + len(words)] == list(words) for start in (0, 1))
            if f"PORT={self.port}".encode() in environ and runs:
                return int(folder.name)
        pytest.fail(f"there is no process {words}")

    def terminate(self) -> None:
        """Send TERM to its first process, tini."""
        os.kill(self.pid_of(*self.config["Entrypoint"][1:]), signal.SIGTERM)

    def said(self) -> str:
        """Return all that it wrote; it must have ended."""
        return self.process.communicate(timeout=20)[0]

    def remove(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.terminate()
        self.process.communicate(timeout=20)
        buildah("rm", self.name)


@pytest.fixture
def running(gpu_image: str) -> Iterator[Container]:
    """The image with proxy and engine, running."""
    container = Container(
        gpu_image,
        ENGINE_GPU="0",
        ENGINE_PORT=str(free_port()),
        FAKE_VLLM_LOAD_S="3",
        FAKE_VLLM_TOKENIZER="/repo/structured_server/data/triage",
        STRUCTURED_SERVER_TOKENIZER="/repo/structured_server/data/triage",
        HF_TOKEN="hf_marker",  # noqa: S106  a marker
    )
    yield container
    container.remove()


def test_it_binds_at_once_becomes_ready_decides_and_drains(running: Container) -> None:
    config = running.config
    assert ["tini", "--", "/opt/structured-server/entrypoint.sh"] == config["Entrypoint"]
    assert ("10001", {"8080/tcp": {}}) == (config["User"], config["ExposedPorts"])
    assert running.wait_for("/live", 200) < 3
    assert running.wait_for("/ready", 503) < 3
    running.wait_for("/ready", 200)
    reply = httpx.post(f"http://127.0.0.1:{running.port}/decide", json=ASKED, timeout=10)
    assert (200, "dgemma") == (reply.status_code, reply.json()["model"])

    proxy = running.pid_of(*PROXY)
    engine = running.pid_of(*ENGINE)
    assert b"hf_marker" not in Path(f"/proc/{proxy}/environ").read_bytes()
    assert b"hf_marker" in Path(f"/proc/{engine}/environ").read_bytes()
    assert 10001 == Path(f"/proc/{proxy}").stat().st_uid == Path(f"/proc/{engine}").stat().st_uid

    begun = time.monotonic()
    running.terminate()
    said = running.said()
    assert time.monotonic() - begun < 9
    assert 0 == running.process.returncode, said
    assert "told to stop: the proxy drains, then the engine ends" in said
    assert not Path(f"/proc/{engine}").exists()


@pytest.mark.parametrize("who", ["proxy", "engine"])
def test_either_death_ends_the_container_with_its_status(running: Container, who: str) -> None:
    running.wait_for("/ready", 200)
    os.kill(running.pid_of(*(PROXY if who == "proxy" else ENGINE)), signal.SIGKILL)
    said = running.said()
    assert 137 == running.process.returncode, said
    assert f"the {who} ended by itself with status 137" in said


def test_the_small_image_serves_the_embedded_model(base: str) -> None:
    container = Container(build(base, "proxy"), "serve", "--backend", "embedded", "--host", "127.0.0.1")
    try:
        assert container.wait_for("/live", 200) < 3
        container.wait_for("/ready", 200)
        reply = httpx.post(f"http://127.0.0.1:{container.port}/decide", json=ASKED, timeout=10)
        assert 200 == reply.status_code
    finally:
        container.remove()
