"""`structured-server demo`: the embedded model on loopback, and what it says of eight incidents."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import structured_server
from structured_server.api.server import listen
from structured_server.cli.asking import ask
from structured_server.cli.exits import SERVER, Refused
from structured_server.cli.options import Target
from structured_server.errors import SettingsError
from structured_server.settings import PREFIX

if TYPE_CHECKING:
    from rich.console import Console

_HOST = "127.0.0.1"
_PORTS = range(8080, 8180)
_START_LIMIT_S = 120
_READ_LIMIT_S = 60
_STOP_LIMIT_S = 15
_LIMITS = "demo_model_limits"  # the warning that every answer carries where the model fell short

_INTRODUCTION = (
    "The embedded model, {model}, runs on this machine's CPU. It was trained to triage incidents and "
    "tickets, and knows nothing else."
)

_TRY = {
    "state": "Disk full on the database primary since 04:10: every second checkout fails.",
    "questions": {
        "urgent": {"type": "noul", "instructions": "Should we wake an on-call engineer?"},
        "team": {
            "type": "choice",
            "instructions": "Which team owns the incident?",
            "criteria": dict.fromkeys(("compute", "networking", "security", "storage", "billing")),
        },
    },
}

_EPILOG = """\b
Examples:
  structured-server demo
  structured-server demo --once | less -R

Exit codes: 0 done, 2 wrong flags, 5 the server did not start.
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    help=f"Port to listen on. Default: {_PORTS[0]}, or the next free one.",
)
@click.option(
    "--once/--keep-serving",
    default=None,
    help="End once all is printed, or serve on. Default: serve on where the output is a terminal.",
)
def demo(port: int | None, once: bool | None) -> None:
    """Serve the embedded model on this machine, and print what it decides about eight incidents.

    Needs no engine, no GPU and no network.
    """
    from rich.console import Console

    console = Console(highlight=False)
    port = _free_port(_PORTS if port is None else [port])
    url = f"http://{_HOST}:{port}"
    with _server(port) as server:
        _wait_until_ready(server, url)
        _print_decisions(url, console)
        line = f"curl -s {url}/decide -d {shlex.quote(json.dumps(_TRY))}"
        console.print(f"\nTry next:\n{line}", markup=False, soft_wrap=True)
        if not (once if once is not None else not sys.stdout.isatty()):
            console.print(f"\nServing on {url}, documentation at {url}/docs. Ctrl-C ends it.", soft_wrap=True)
            with suppress(KeyboardInterrupt):
                raise Refused(f"the server ended with {server.wait()}.", SERVER)


def incidents() -> tuple[dict[str, Any], Sequence[dict[str, Any]]]:
    """Return the example's questions, and its eight incidents."""
    import yaml

    package = Path(structured_server.__file__).parent
    name = Path("incident_triage")
    packaged = package / "data" / name
    folder = packaged if packaged.is_dir() else package.parent / "examples" / name  # the latter in a checkout
    questions = yaml.safe_load((folder / "questions.yaml").read_text("utf-8"))
    return questions, yaml.safe_load((folder / "incidents.yaml").read_text("utf-8"))


def _free_port(candidates: Sequence[int]) -> int:
    """Return the first that can be listened on.

    Raises:
        SettingsError: there is none.
    """
    for port in candidates[:-1]:
        with suppress(SettingsError):
            listen(_HOST, port).close()
            return port
    listen(_HOST, candidates[-1]).close()
    return candidates[-1]


@contextmanager
def _server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run `structured-server serve` with the embedded model as a child that ends with this process.

    Settings in the environment are meant for other servers and are left out.
    """
    command = [sys.executable, "-m", "structured_server", "serve", "--backend", "embedded"]
    command += ["--allow-demo-model", "--host", _HOST, "--port", str(port), "--log-level", "warning"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environ)  # noqa: S603  it is this program
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    import httpx

    said: Any = None
    end = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < end:
        if server.poll() is not None:
            raise Refused(f"the server ended with {server.returncode} before it was ready.", SERVER)
        with suppress(httpx.TransportError):
            said = httpx.get(f"{url}/ready", trust_env=False).json()
            if said["ready"]:
                return
            if said["problem"]:  # it waits for nobody, so this will not mend itself
                raise Refused(f"the server cannot get ready: {said['problem']}", SERVER)
        time.sleep(0.05)
    raise Refused(f"the server is not ready after {_START_LIMIT_S} s; it says: {said}.", SERVER)


def _print_decisions(url: str, console: Console) -> None:
    from structured_server.cli.table import print_answers

    questions, all_incidents = incidents()
    decided: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for incident in all_incidents:
        state = {"alert": incident["title"], "detail": incident["text"]}
        server = Target(url, timeout=_READ_LIMIT_S, trust_env=False)
        answer = ask(server, {"state": state, "questions": questions})
        limits = [each["message"] for each in answer["warnings"] if each["code"] == _LIMITS]
        answer["warnings"] = [each for each in answer["warnings"] if each["code"] != _LIMITS]
        if not decided:
            console.print(_INTRODUCTION.format(model=answer["model"]))
            for limit in limits:
                console.print(limit, style="yellow", markup=False)
        console.print(f"\n{incident['title']}", style="bold", markup=False)
        console.print(_reader(incident), style="dim", markup=False)
        print_answers(answer, console)
        decided.append((incident, answer))
    console.print(_summary(decided))


def _reader(incident: dict[str, Any]) -> str:
    if incident["clear"]:
        return f"Clear. A careful reader says: {', '.join(incident['expected'].values())}."
    *others, last = incident["plausible"]
    return f"Ambiguous. A careful reader could say {', '.join(others)} or {last}."


def _summary(decided: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Say in how many clear incidents all answers are the reader's, and how many of each kind extended."""
    from structured_server.cli.table import answer_word

    clear = [(incident["expected"], answer) for incident, answer in decided if incident["clear"]]
    ambiguous = [answer for incident, answer in decided if not incident["clear"]]
    right = sum(
        expected == {name: answer_word(each) for name, each in answer["answers"].items()}
        for expected, answer in clear
    )
    return (
        f"\nClear incidents: {right} of {len(clear)} answered as a careful reader does. "
        "Asked for more reads: "
        f"{sum(answer['reading']['extended'] for answer in ambiguous)} of {len(ambiguous)} ambiguous, "
        f"{sum(answer['reading']['extended'] for _, answer in clear)} of {len(clear)} clear ones."
    )
