"""`structured-server demo` as a process: what a newcomer sees, and that nothing is left behind."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from structured_server.cli.demo import incidents
from tests.engine.server import free_port

LIMIT_S = 60

OnATerminal = Callable[..., tuple[subprocess.Popen[bytes], int]]


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "structured_server", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **environ},
    )


def is_free(port: int) -> bool:
    """Tell whether nothing listens on a port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def on_a_terminal() -> Iterator[OnATerminal]:
    """Start the command on a terminal of its own, and give its process and the terminal's other end."""
    started: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[bytes], int]:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "structured_server", "demo", *arguments]
        process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        started.append((process, ours))
        return process, ours

    yield start
    for process, ours in started:
        process.terminate()
        process.wait(LIMIT_S)
        os.close(ours)


def read_until(terminal: int, text: str) -> str:
    """Read what is printed until some text comes."""
    seen = ""
    end = time.monotonic() + LIMIT_S
    while text not in seen and time.monotonic() < end:
        try:
            seen += os.read(terminal, 65_536).decode(errors="replace")
        except OSError:  # its end was closed
            break
    assert text in seen, seen
    return seen


def test_it_prints_eight_tables_and_ends() -> None:
    done = run("--once")
    assert (0, "") == (done.returncode, done.stderr)
    questions, asked = incidents()
    places = [done.stdout.index(incident["title"]) for incident in asked]
    assert sorted(places) == places
    for start, end in zip(places, [*places[1:], None], strict=True):
        table = done.stdout[start:end]
        assert all(name in table for name in questions)
        assert "█" in table
        assert " ms, " in table
    assert "Clear incidents: " in done.stdout


def test_it_ends_by_itself_where_nobody_looks_at_a_terminal() -> None:
    done = run()
    assert 0 == done.returncode
    assert "Serving on" not in done.stdout


def test_draws_that_were_added_show_their_spread() -> None:
    """Whichever incidents extend: a table with error bars says which questions asked for more reads."""
    output = run("--once").stdout
    _, asked = incidents()
    for part in output.split("\n\n"):
        if any(incident["title"] in part for incident in asked):
            assert ("±" in part) == ("more draws asked for by" in part)


def test_the_line_to_try_next_works_while_it_serves_on() -> None:
    port = free_port()
    command = [sys.executable, "-m", "structured_server", "demo", "--keep-serving", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = next(line for line in process.stdout if line.startswith("curl "))
    program, silent, url, data, body = shlex.split(line)
    assert ("curl", "-s", "-d") == (program, silent, data)
    answer = httpx.post(url, content=body, timeout=LIMIT_S).json()
    assert ["urgent", "team"] == list(answer["answers"])
    assert "outside_demo_domain" not in {each["code"] for each in answer["warnings"]}
    process.terminate()
    process.communicate(timeout=LIMIT_S)
    assert 0 == process.returncode
    assert is_free(port)


def test_on_a_terminal_it_serves_until_it_is_interrupted(
    on_a_terminal: OnATerminal,
) -> None:
    port = free_port()
    process, terminal = on_a_terminal("--port", str(port))
    read_until(terminal, "Ctrl-C ends it.")
    assert 200 == httpx.get(f"http://127.0.0.1:{port}/ready").status_code
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    assert 0 == process.wait(LIMIT_S)
    assert is_free(port)


def test_a_port_in_use_is_passed_over_unless_it_was_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        refused = run("--once", "--port", str(taken))
        assert 2 == refused.returncode
        assert f"cannot listen on 127.0.0.1:{taken}" in refused.stderr
        assert 1 == len(refused.stderr.splitlines())
    try:
        other = socket.create_server(("127.0.0.1", 8080))
    except OSError:  # somebody else has it, which is as good
        other = socket.socket()
    with other:
        done = run("--once")
    assert 0 == done.returncode
    assert "http://127.0.0.1:8080/" not in done.stdout


def test_a_runtime_that_cannot_be_loaded_is_told_at_once(tmp_path: Path) -> None:
    broken = tmp_path / "onnxruntime"
    broken.mkdir()
    (broken / "__init__.py").write_text('raise ImportError("libonnxruntime.so is missing")')
    done = run("--once", PYTHONPATH=str(tmp_path))
    assert 5 == done.returncode
    assert "onnxruntime cannot be imported: libonnxruntime.so is missing." in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_and_proxies_of_the_environment_do_not_disturb_it() -> None:
    done = run(
        "--once",
        STRUCTURED_SERVER_UPSTREAM="http://engine:8000",
        STRUCTURED_SERVER_API_KEY="secret",
        HTTP_PROXY="http://127.0.0.1:9",
        ALL_PROXY="http://127.0.0.1:9",
        KUBERNETES_SERVICE_HOST="10.0.0.1",
    )
    assert (0, "") == (done.returncode, done.stderr)
