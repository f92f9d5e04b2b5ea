"""`structured-server keys`: makes keys that a server then takes, and checks files of them."""

from __future__ import annotations

from datetime import date
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from structured_server.cli.main import cli
from structured_server.keys import Key, digest_of, load_keys


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["keys", *arguments])


def made(tmp_path: Path, *arguments: str) -> tuple[str, Key]:
    """Make a key, put its entry into a file, and return it with what the file says."""
    result = run("new", *arguments)
    assert 0 == result.exit_code, result.output
    key, empty, *entry = result.stdout.splitlines()
    assert "" == empty
    file = tmp_path / "keys.yaml"
    file.write_text("\n".join(["keys:", *entry, ""]))
    (loaded,) = load_keys(str(file))
    return key, loaded


def test_a_new_key_is_shown_once_and_its_entry_holds_only_the_digest(tmp_path: Path) -> None:
    key, entry = made(tmp_path, "triage")
    assert key.startswith("ssk_")
    assert Key("triage", digest_of(key.encode())) == entry
    assert key not in (tmp_path / "keys.yaml").read_text()


def test_what_the_key_may_stands_in_its_entry(tmp_path: Path) -> None:
    options = ("--requests-per-minute", "600", "--expires", "2999-03-31", "--cache-salt")
    key, entry = made(tmp_path, "triage", *options)
    assert Key("triage", digest_of(key.encode()), 600, date(2999, 3, 31), salted=True) == entry


def test_no_two_keys_are_alike(tmp_path: Path) -> None:
    assert made(tmp_path, "triage")[0] != made(tmp_path, "triage")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a b",), "a name is 1 to 64 of"),
        (("triage", "--requests-per-minute", "0"), "--requests-per-minute"),
        (("triage", "--expires", "2020-01-01"), "must be a day to come"),
        (("triage", "--expires", "tomorrow"), "--expires"),
        ((), "NAME"),
    ],
)
def test_what_cannot_be_is_a_usage_error_and_shows_no_key(arguments: tuple[str, ...], message: str) -> None:
    result = run("new", *arguments)
    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr


def entry(name: str, key: bytes, more: str = "") -> str:
    return f"  - name: {name}\n    sha256: '{sha256(key).hexdigest()}'\n{more}"


def test_check_says_what_each_key_may(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    text = entry("a", b"1", "    requests_per_minute: 60\n    expires: 2999-01-02\n    cache_salt: true\n")
    file.write_text("keys:\n" + text + entry("b", b"2"))
    result = run("check", str(file))
    assert 0 == result.exit_code, result.output
    assert [
        f"a ({sha256(b'1').hexdigest()[:8]}): 60 a minute, until 2999-01-02, cache salt",
        f"b ({sha256(b'2').hexdigest()[:8]}): no limit, no end",
    ] == result.stdout.splitlines()


def test_check_warns_of_a_key_that_has_expired(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("keys:\n" + entry("a", b"1", "    expires: 2020-01-02\n"))
    result = run("check", str(file))
    assert (3, True) == (result.exit_code, "expired 2020-01-02" in result.stdout)


def test_check_says_that_a_file_without_keys_locks_everybody_out(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("keys: []\n")
    result = run("check", str(file))
    assert (0, "no keys: nobody gets in\n") == (result.exit_code, result.stdout)


def test_check_refuses_a_wrong_file_without_repeating_what_stands_there(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("keys:\n  - name: a\n    sha256: ssk_not-a-digest\n")
    result = run("check", str(file))
    assert 4 == result.exit_code
    assert "keys.0.sha256" in result.stderr
    assert "ssk_not-a-digest" not in result.output


@pytest.mark.parametrize("command", [(), ("new",), ("check",)])
def test_help_has_examples(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert 0 == result.exit_code
    assert "Examples:\n" in result.output
    assert f"structured-server keys {' '.join(command)}".strip() in result.output
