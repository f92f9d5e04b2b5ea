"""`structured-server ask` against the real vLLM server, by itself and behind ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from tests.engine.server import Engine, default_checkpoint
from tests.proxy import launch_proxy


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["ask", *arguments])


@pytest.mark.parametrize("way", [(), ("--no-stream",), ("--think",)])
def test_the_engine_writes(engine: Engine, way: tuple[str, ...]) -> None:
    result = run("-u", f"{engine.url}/v1", "-m", "dgemma", "--max-tokens", "12", "--stats", *way, "Why?")
    assert 0 == result.exit_code, result.output
    assert result.stdout.strip()
    assert "written 12" in result.stderr


def test_behind_our_server_it_is_the_same(engine: Engine, tmp_path: Path) -> None:
    proxy = launch_proxy(
        tmp_path / "log",
        ("--upstream", engine.url, "--model", "dgemma", "--tokenizer", str(default_checkpoint())),
    )
    try:
        proxy.wait_until_ready()
        result = run("-u", proxy.url, "--max-tokens", "12", "--stats", "Why?")
        unknown = run("-u", proxy.url, "-m", "gpt-5", "Why?")
    finally:
        proxy.stop()
    assert 0 == result.exit_code, result.output
    assert "written 12" in result.stderr
    assert (4, True) == (unknown.exit_code, "not served here" in unknown.output)
