"""Fitted policies: read from a file, applied to the decisions that they were fitted for and to no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.answers import Answer
from structured_server.core.policy import ByType, FittedPolicy, ReadPolicy
from structured_server.driver import Outcome
from structured_server.errors import SettingsError
from structured_server.policy_file import load_policy
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, query
from tests.shell.simulated_time import simulated

GOOD: dict[str, Any] = {
    "policy": "triage-2026-11",
    "fingerprint": "fp_0123abcd",
    "temperatures": {"noul": 1.5, "choice": 2, "score": 0.7},
    "thresholds": {"noul": 0.1, "choice": 0.3, "score": 0},
}


def written(folder: Path, content: str | bytes) -> str:
    file = folder / "policy.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


# The file


def test_a_policy_is_read_from_json_and_from_yaml(tmp_path: Path) -> None:
    expected = FittedPolicy("triage-2026-11", "fp_0123abcd", ByType(1.5, 2.0, 0.7), ByType(0.1, 0.3, 0.0))
    assert expected == load_policy(written(tmp_path, json.dumps(GOOD)))
    yaml = """
policy: triage-2026-11
fingerprint: fp_0123abcd
temperatures: {noul: 1.5, choice: 2, score: 0.7}
thresholds:
  noul: 0.1
  choice: 0.3
  score: 0
"""
    assert expected == load_policy(written(tmp_path, yaml))


def test_what_was_not_fitted_is_left_alone(tmp_path: Path) -> None:
    only = {name: GOOD[name] for name in ("policy", "fingerprint")}
    assert FittedPolicy("triage-2026-11", "fp_0123abcd") == load_policy(written(tmp_path, json.dumps(only)))
    one = only | {"temperatures": {"choice": 2}}
    assert ByType(1.0, 2.0, 1.0) == load_policy(written(tmp_path, json.dumps(one))).temperatures


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file: "),
        ("[]", "the file: "),
        ("policy: [", "is neither JSON nor YAML"),
        (b"\xff\xfe\x00", "is neither JSON nor YAML"),
        ("a: 2026-13-45", "is neither JSON nor YAML"),
        ("a: !!int many", "is neither JSON nor YAML"),
        ("a: !!bool maybe", "is neither JSON nor YAML"),
        ("a: !!python/object:os.system {}", "is neither JSON nor YAML"),
        ("[" * 5000, "is neither JSON nor YAML"),
        (GOOD | {"policy": ""}, "policy: "),
        (GOOD | {"policy": 7}, "policy: "),
        (GOOD | {"fingerprint": "0123abcd"}, "fingerprint: "),
        (GOOD | {"temperature": 1}, "temperature: "),
        (GOOD | {"temperatures": {"noul": 0}}, "temperatures.noul: "),
        (GOOD | {"temperatures": {"noul": -1}}, "temperatures.noul: "),
        (GOOD | {"temperatures": {"noul": float("nan")}}, "temperatures.noul: "),
        (GOOD | {"temperatures": {"noul": float("inf")}}, "temperatures.noul: "),
        (GOOD | {"temperatures": {"rank": 1}}, "temperatures.rank: "),
        (GOOD | {"thresholds": {"noul": 0.1}}, "thresholds.choice: "),
        (GOOD | {"thresholds": {"noul": -0.1, "choice": 0, "score": 0}}, "thresholds.noul: "),
        ({"fingerprint": "fp_0"}, "policy: "),
        ({"policy": "p"}, "fingerprint: "),
    ],
)
def test_a_file_that_is_no_policy_is_refused_with_its_name_and_the_place(
    tmp_path: Path, content: str | bytes | dict[str, Any], message: str
) -> None:
    if isinstance(content, dict):
        content = json.dumps(content).replace("NaN", ".nan").replace("Infinity", ".inf")
    file = written(tmp_path, content)
    with pytest.raises(SettingsError) as caught:
        load_policy(file)
    assert caught.value.message.startswith(f"--policy {file}")
    assert message in caught.value.message
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=r"cannot be read: (No such file|Is a directory)"):
        load_policy(str(tmp_path / name))


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_file_is_a_policy_or_a_wrong_setting(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        file = written(Path(folder), content)
        with pytest.raises(SettingsError):
            load_policy(file)


# What it is for


def two_to_one(request: Any, token_id: int, _position: int) -> float:
    """Give the first label and its variant twice what the others get, nearly."""
    return -2.0 if token_id in request.label_ids[:2] else -2.7


def distributions(outcome: Outcome) -> list[tuple[float, ...]]:
    found = outcome.decision.answers.values()
    return [each.distribution.probabilities for each in found if isinstance(each, Answer)]


async def plain(policy: ReadPolicy | None = None) -> Outcome:
    """Return what is decided without any fitted policy."""
    return await Deciding(FakeBackend(logprob=two_to_one)).driver.decide(query(policy=policy))


async def fitted_for(fingerprint: str, *, policy: ReadPolicy | None = None, **fitted: Any) -> Outcome:
    """Return what is decided with a policy that was fitted for decisions of a fingerprint."""
    given = FittedPolicy("fitted", fingerprint, **fitted)
    return await Deciding(FakeBackend(logprob=two_to_one), fitted=given).driver.decide(query(policy=policy))


@simulated
async def test_a_policy_that_was_fitted_for_just_this_is_applied_and_named() -> None:
    before = await plain()
    after = await fitted_for(before.fingerprint, temperatures=ByType.same(2.0), thresholds=ByType.same(2.0))
    calibration = after.decision.calibration
    assert calibration is not None
    assert ("fitted", True) == (calibration.policy.name, calibration.fingerprint_match)
    assert "policy_mismatch" not in {warning.code for warning in after.decision.warnings}
    by_hand = await plain(ReadPolicy(temperatures=ByType.same(2.0), entropy_thresholds=ByType.same(2.0)))
    assert distributions(by_hand) == distributions(after) != distributions(before)
    assert (4, 1) == tuple(len(each.decision.reads) for each in (before, after))


@simulated
async def test_an_answer_with_a_policy_applied_has_another_fingerprint_than_one_without() -> None:
    before = (await plain()).fingerprint
    applied = {
        (await fitted_for(before, temperatures=ByType.same(value))).fingerprint for value in (1.5, 2.0)
    }
    assert 3 == len({before, *applied})


@simulated
async def test_only_what_was_fitted_takes_the_place_of_the_servers_own() -> None:
    before = await plain()
    after = await fitted_for(before.fingerprint, thresholds=ByType.same(2.0))
    assert 1 == len(after.decision.reads)
    assert distributions(await plain(ReadPolicy(1))) == distributions(after)


@pytest.mark.parametrize("other", ["another fingerprint", "another policy asked for", "other questions"])
@simulated
async def test_a_policy_that_was_fitted_for_something_else_is_told_and_nothing_of_it_applied(
    other: str,
) -> None:
    fitted: dict[str, Any] = {"temperatures": ByType.same(2.0), "thresholds": ByType.same(2.0)}
    fingerprint, asked = (await plain()).fingerprint, None
    if other == "another fingerprint":
        fingerprint = "fp_00000000"
    else:
        asked = ReadPolicy(max_reads=7)
    before, after = await plain(asked), await fitted_for(fingerprint, policy=asked, **fitted)
    if other == "other questions":
        deciding = Deciding(
            FakeBackend(logprob=two_to_one), fitted=FittedPolicy("fitted", fingerprint, **fitted)
        )
        after = await deciding.driver.decide(query(isolate="all"))
        before = await Deciding(FakeBackend(logprob=two_to_one)).driver.decide(query(isolate="all"))
    calibration = after.decision.calibration
    assert calibration is not None
    assert not calibration.fingerprint_match
    warning, *others = after.decision.warnings
    assert ("policy_mismatch", None) == (warning.code, warning.question)
    assert "fitted" in warning.message
    assert before.decision == replace(after.decision, warnings=tuple(others), calibration=None)
    assert before.fingerprint == after.fingerprint


@simulated
async def test_without_a_policy_nothing_is_said_of_calibration() -> None:
    assert (await plain()).decision.calibration is None
