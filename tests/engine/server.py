"""The real vLLM server and the transformers oracle as objects, for any test folder that needs them.

Nothing here asserts anything about vLLM. Everything it makes lies under `.engine/` in the repository.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "engine"
STATE = ROOT / ".engine"
VENV = Path(os.environ.get("ENGINE_VENV", STATE / "venv"))

# A window this short lets tests stand on both sides of it with cheap prompts.
SLIDING_WINDOW = 128
CANVAS = 64
MAX_MODEL_LEN = 4096
# What an engine needs beside a checkpoint made with --images to see them. vLLM looks at the chat template to
# find out whether it takes images itself, and does not look into macros.
SEEING = (
    "--no-language-model-only",
    *("--limit-mm-per-prompt", '{"image": 8, "video": 0}'),
    *("--chat-template-content-format", "openai"),
)
DEFAULT_ARGUMENTS = ("--sliding-window", str(SLIDING_WINDOW), "--canvas", str(CANVAS))
START_LIMIT = 300.0  # seconds; 20 on an idle machine of two cores
CHECKPOINT_SOURCES = (
    "make_checkpoint.py",
    "make_tokenizer.py",
    "corpus.txt",
    "chat_template.jinja",
    "requirements.txt",
)


def require_engine() -> None:
    """Skip the test where the engine is not installed; fail it under CI=true, where it must be."""
    if (VENV / "bin" / "python").exists() and list(VENV.glob("engine-*.stamp")):
        return
    reason = f"no vLLM in {VENV}: run `make engine`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def checkpoint(*arguments: str) -> Path:
    """Give a checkpoint, built once for the same sources and arguments of engine/make_checkpoint.py."""
    digest = hashlib.sha256("\0".join(arguments).encode())
    for name in CHECKPOINT_SOURCES:
        digest.update((SOURCES / name).read_bytes())
    folder = STATE / "checkpoints" / digest.hexdigest()[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            build_checkpoint(building, *arguments)
            with suppress(OSError):  # another run was first
                building.rename(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return folder


def build_checkpoint(folder: Path, *arguments: str) -> None:
    """Write a checkpoint into a folder, replacing it; fail the test with the script's complaint."""
    python, script = VENV / "bin" / "python", SOURCES / "make_checkpoint.py"
    done = subprocess.run([python, script, folder, *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"make_checkpoint.py failed:\n{done.stderr[-3000:]}", pytrace=False)


def default_checkpoint() -> Path:
    """Give the checkpoint that the shared engine serves."""
    return checkpoint(*DEFAULT_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class Engine:
    """A vLLM server process of our own, in a process group of its own."""

    model_dir: Path
    canvas: int
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def health(self) -> int | None:
        """Give the status of GET /health, or None while nothing listens."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=5)  # tens of times cheaper than httpx.get
        with closing(connection), suppress(OSError, HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status
        return None

    def wait_until_ready(self, limit: float = START_LIMIT) -> None:
        """Wait for GET /health to answer 200, and fail the test with the log's tail if it does not."""
        end = time.monotonic() + limit
        while self.health() != 200:
            if self.process.poll() is not None:
                self._fail(f"vLLM exited with {self.process.returncode} while starting")
            if time.monotonic() > end:
                self.kill()
                self._fail(f"vLLM was not ready after {limit:.0f} s")
            time.sleep(0.2)

    def stop(self, limit: float = 5.0) -> None:
        """End the server as an operator would, and by force after `limit` seconds."""
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(limit)
        self.kill()

    def kill(self) -> None:
        """End every process of the server at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def _fail(self, what: str) -> None:
        tail = self.log.read_text(errors="replace")[-4000:]
        pytest.fail(f"{what}; the end of {self.log}:\n{tail}", pytrace=False)


def start_engine(
    model_dir: Path | None = None,
    canvas: int = CANVAS,
    port: int | None = None,
    extra: Sequence[str] = (),
    *,
    wait: bool = True,
) -> Engine:
    """Start a server, with `extra` vLLM arguments, and wait until it is ready unless told not to."""
    require_engine()
    model_dir = model_dir or default_checkpoint()
    port = port or free_port()
    log = STATE / "logs" / f"vllm-{port}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SOURCES / "serve.sh", model_dir, str(port), str(canvas), *extra],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"ENGINE_VENV": str(VENV)},
            start_new_session=True,
        )
    engine = Engine(model_dir, canvas, port, process, log)
    if wait:
        engine.wait_until_ready()
    return engine


@cache
def shared_engine() -> Engine:
    """Start the one server that all folders share: every session fixture that asks gets the same."""
    return start_engine()


def free_port() -> int:
    """Find a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Oracle:
    """engine/oracle.py as a process that answers reads one by one."""

    model_dir: Path
    _process: subprocess.Popen[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_engine()
        self._process = subprocess.Popen(
            [VENV / "bin" / "python", SOURCES / "oracle.py", self.model_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._line() == "ready"

    def read(
        self,
        prompt: Sequence[int],
        canvas: Sequence[int],
        positions: Sequence[int],
        ids: Sequence[int],
        images: Sequence[bytes] = (),
    ) -> list[list[float]]:
        """Give whole-vocabulary log-probabilities at temperature 1, a row a position, a number an id.

        The tokens of images stand in the prompt already.
        """
        logprobs: list[list[float]] = self._ask(prompt, canvas, positions, ids, images=images)["logprobs"]
        return logprobs

    def argmax(self, prompt: Sequence[int], canvas: Sequence[int], positions: Sequence[int]) -> list[int]:
        """Give the most probable id at each position."""
        argmax: list[int] = self._ask(prompt, canvas, positions, ())["argmax"]
        return argmax

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=10)

    def _ask(self, *values: Sequence[int], images: Sequence[bytes] = ()) -> dict[str, Any]:
        assert self._process.stdin is not None
        asked: dict[str, Any] = dict(
            zip(("prompt", "canvas", "positions", "ids"), map(list, values), strict=True)
        )
        asked["images"] = [base64.b64encode(image).decode("ascii") for image in images]
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the oracle ended with {self._process.wait(10)}"
        return line.strip()
