"""`structured-server ask` where things go wrong. What goes right is in tests/e2e, by the real engine."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from tests.engine.server import free_port
from tests.fake_server import Reply, error, serving
from tests.serving import serving_http


def run(*arguments: str, stdin: str | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["ask", *arguments], input=stdin)


def written(text: str, **more: Any) -> Reply:
    """Return a chat's reply in one piece."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **more}, "finish_reason": "stop"}
    return 200, {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}, {}


def test_an_endpoint_that_does_not_stream_is_read_whole() -> None:
    with serving(lambda *_: written("Yes.", reasoning="Well")) as server:
        result = run("-u", f"{server.url}/v1", "-m", "any", "--system", "Be brief.", "--stats", "Is it?")
    assert 0 == result.exit_code, result.output
    assert "Yes.\n" in result.stdout
    assert "Well" in result.stderr
    assert "prompt 3, written 2" in result.stderr
    asked = server.asked[0]
    assert "any" == asked["model"]
    assert ["Be brief.", "Is it?"] == [message["content"] for message in asked["messages"]]
    assert asked["stream"]


def test_the_prompt_comes_from_a_file_or_standard_input_too(tmp_path: Any) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Zürich?", "utf-8")
    with serving(lambda *_: written("Yes.")) as server:
        run("-u", server.url, "-f", str(file))
        run("-u", server.url, "-", stdin="Zürich?")
    assert ["Zürich?"] * 2 == [asked["messages"][-1]["content"] for asked in server.asked]


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (error(401, "missing_key", "no key came."), 6, "--token"),
        (error(422, "invalid_request", "this backend only reads."), 4, "only reads"),
        (error(503, "loading", "the engine loads."), 5, "the engine loads"),
        ((200, {"hello": 1}, {}), 5, "did not answer as in a chat"),
        ((200, {"choices": [{"message": 7}]}, {}), 5, "did not answer as in a chat"),
        ((404, {"message": "nothing"}, {}), 5, "not as a structured-server does"),
        (None, 5, "cannot reach"),
    ],
)
def test_what_is_no_text_has_an_exit_code_and_says_why(reply: Reply | None, code: int, said: str) -> None:
    with serving(lambda *_: reply) as server:
        result = run("-u", server.url, "Is it?")
    assert (code, True) == (result.exit_code, said in result.output), result.output
    assert "Traceback" not in result.output


def test_nobody_there_exits_with_5_and_bad_input_with_4() -> None:
    assert 5 == run("-u", f"http://127.0.0.1:{free_port()}", "x").exit_code
    assert 4 == run().exit_code
    assert 4 == run("-f", "/nowhere/at/all").exit_code
    assert 4 == run("-u", "nowhere", "x").exit_code


def test_a_server_that_only_reads_says_so() -> None:
    with serving_http() as url:
        result = run("-u", url, "Tell me.")
    assert 4 == result.exit_code
    assert "only reads" in result.output
