"""Starts a real vLLM server on this CPU and the server in front of it, and prints the eight decisions.

`make run` calls this. The checkpoint has random weights: what is real is the path, not the judgement.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import yaml
from rich.console import Console

from structured_server.cli.table import print_answers

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHECKPOINT = ROOT / ".engine" / "demo-checkpoint"
START_LIMIT_S = 300


def main() -> None:
    """Start both, decide the incidents, end both."""
    console = Console(highlight=False)
    if not (CHECKPOINT / "config.json").exists():
        console.print("Making a small checkpoint with random weights ...")
        make = [
            ROOT / ".engine" / "venv" / "bin" / "python",
            ROOT / "engine" / "make_checkpoint.py",
            CHECKPOINT,
        ]
        subprocess.run(make, check=True, capture_output=True)
    engine_port, port = _free_port(), _free_port()
    engine: list[str | Path] = [ROOT / "engine" / "serve.sh", CHECKPOINT, str(engine_port), "64"]
    server = [
        sys.executable,
        "-m",
        "structured_server",
        "serve",
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]
    server += [
        "--upstream",
        f"http://127.0.0.1:{engine_port}",
        "--model",
        "dgemma",
        "--tokenizer",
        str(CHECKPOINT),
    ]
    with (
        _running(engine, ROOT / ".engine" / "demo-engine.log"),
        _running(server, ROOT / ".engine" / "demo-server.log"),
    ):
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, console)
        questions = yaml.safe_load((HERE / "questions.yaml").read_text("utf-8"))
        for incident in yaml.safe_load((HERE / "incidents.yaml").read_text("utf-8")):
            console.print(f"\n[bold]{incident['title']}[/bold]")
            state = {"alert": incident["title"], "detail": incident["text"]}
            reply = httpx.post(f"{url}/decide", json={"state": state, "questions": questions}, timeout=60)
            reply.raise_for_status()
            answer = reply.json()
            answer["warnings"] = []  # random weights warn of little label mass everywhere
            print_answers(answer, console)
    console.print(
        "\nThe weights are random, so the answers mean nothing. In front of a model that knows something:\n"
        "  structured-server serve --upstream URL --model NAME --tokenizer FOLDER_OR_HUB_ID"
    )


@contextlib.contextmanager
def _running(command: Sequence[str | Path], log: Path) -> Iterator[None]:
    """Run a program in a process group of its own, and end all of the group at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
        if process.poll() is not None:
            raise SystemExit(f"{command[0]} ended with {process.returncode}; see {log}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_ready(url: str, console: Console) -> None:
    """Show each step of readiness as it comes."""
    shown = ""
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError):
            said = httpx.get(f"{url}/ready", timeout=5).json()
            if said["ready"]:
                return
            if said["step"] != shown:
                shown = said["step"]
                console.print(f"[dim]waiting for {said['waits_for']}[/dim]")
        time.sleep(0.1)
    raise SystemExit(f"not ready after {START_LIMIT_S} s; see the logs in {ROOT / '.engine'}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
