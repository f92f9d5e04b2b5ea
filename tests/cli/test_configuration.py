"""Where settings come from: flags, environment, the project's file, the user's; and what is wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from structured_server.cli.durations import seconds_of
from structured_server.cli.main import cli
from tests.fake_server import answer, serving


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and, below it, a project that is the working folder. No variable of ours is set."""
    folder = tmp_path / "home"
    (folder / "project" / "deep").mkdir(parents=True)
    monkeypatch.chdir(folder / "project" / "deep")
    monkeypatch.setenv("HOME", str(folder))
    for name in ("URL", "TOKEN", "TIMEOUT", "MODEL", "STATS"):
        for prefix in ("STRUCTURED_SERVER_", "DGEM_"):
            monkeypatch.delenv(prefix + name, raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


def shown(*arguments: str) -> dict[str, Any]:
    result = run("config", "show", "-o", "json", *arguments)
    assert 0 == result.exit_code, result.output
    said: dict[str, Any] = json.loads(result.output)
    return said


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file


def test_each_layer_gives_way_to_the_one_above(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"value": "http://127.0.0.1:8080", "from": "default"} == shown()["url"]
    theirs = write(home / ".config" / "dgem" / "config.yaml", "url: https://theirs\nmodel: m1\n")
    assert {"value": "https://theirs", "from": str(theirs)} == shown()["url"]
    users = write(home / ".config" / "structured-server" / "config.yaml", "url: https://users\ntimeout: 2m\n")
    assert {"value": "https://users", "from": str(users)} == shown()["url"]
    dgem = write(home / "project" / ".dgem.yaml", "url: https://dgem\nstats: true\n")
    assert {"value": "https://dgem", "from": str(dgem)} == shown()["url"]
    project = write(home / "project" / ".structured-server.yaml", "url: https://project\n")
    assert {"value": "https://project", "from": str(project)} == shown()["url"]
    assert {"value": 120.0, "from": str(users)} == shown()["timeout"]
    monkeypatch.setenv("DGEM_URL", "https://variable")
    assert {"value": "https://variable", "from": "DGEM_URL"} == shown()["url"]
    monkeypatch.setenv("STRUCTURED_SERVER_URL", "https://own")
    assert {"value": "https://own", "from": "STRUCTURED_SERVER_URL"} == shown()["url"]
    assert {"value": "https://flag", "from": "flag"} == shown("-u", "https://flag")["url"]


def test_every_setting_of_the_other_client_works_by_file_and_by_variable(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda _, body: answer(body)) as server:
        write(
            home / "project" / ".dgem.yaml",
            f"url: {server.url}/v1\nmodel: google/diffusiongemma\ntimeout: 60s\nstats: true\n",
        )
        monkeypatch.setenv("DGEM_TOKEN", "ya29.token")
        questions = write(home / "q.yaml", "urgent: {type: noul, instructions: 'Wake?'}")
        result = run("decide", "-q", str(questions), "-o", "json", "--no-stats", "502")
        assert 0 == result.exit_code, result.output
        assert "google/diffusiongemma" == server.asked[0]["model"]
        assert "Bearer ya29.token" == server.headers[0]["authorization"]


def test_a_token_is_not_shown(home: Path) -> None:
    write(home / "project" / ".dgem.yaml", "token: ya29.secret\n")
    result = run("config", "show")
    assert "ya29" not in result.output
    assert "(set)" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url: [", "line 1 is neither JSON nor YAML"),
        ("- url", "must hold settings by name"),
        ("urll: https://x", "urll is no setting. Did you mean url?"),
        ("zzz: 1", "zzz is no setting. There are url"),
        ("url: 7", "url must be text"),
        ("stats: 'yes'", "stats must be true or false"),
        ("timeout: soon", "timeout must be a time such as 60"),
        ("timeout: true", "timeout must be a time such as 60"),
        ("timeout: 0", "timeout must be a time such as 60"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_and_never_passed_over(home: Path, text: str, said: str) -> None:
    file = write(home / "project" / ".structured-server.yaml", text)
    for command in ("config show", "models", "ping", "decide -q x y"):
        result = run(*command.split())
        assert 4 == result.exit_code, result.output
        assert str(file) in result.output
        assert said in result.output


def test_help_and_the_server_need_no_file_to_be_right(home: Path) -> None:
    write(home / "project" / ".dgem.yaml", "url: [")
    assert 0 == run("decide", "--help").exit_code
    assert 0 == run("serve", "--help").exit_code


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("60", 60),
        ("60s", 60),
        (60, 60),
        (0.5, 0.5),
        ("1.5m", 90),
        ("500ms", 0.5),
        ("1m30s", 90),
        ("2h", 7200),
    ],
)
def test_times_are_read_as_people_write_them(said: Any, seconds: float) -> None:
    assert seconds == pytest.approx(seconds_of(said))


@pytest.mark.parametrize(
    "said", ["", "soon", "-1", "0", "1x", "s", "1m 30", None, [], float("nan"), float("inf")]
)
def test_what_is_no_time_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match="must be a time"):
        seconds_of(said)
