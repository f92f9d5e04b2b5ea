"""The keys file, what a key is, and how often one may be used."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from structured_server.errors import MissingKey, RateLimited, SettingsError, WrongKey
from structured_server.keys import KEY_PREFIX, Gate, Key, digest_of, load_keys, new_key
from structured_server.keys.limits import RateLimiter
from structured_server.keys.ring import matching

SECRET = "ssk_" + "s" * 43
DIGEST = sha256(SECRET.encode()).hexdigest()
OTHER = sha256(b"other").hexdigest()
ENTRY: dict[str, Any] = {"name": "triage", "sha256": DIGEST}


def written(folder: Path, content: object) -> str:
    file = folder / "keys.yaml"
    file.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
    return str(file)


# The file


def test_keys_are_read_from_yaml_and_from_json(tmp_path: Path) -> None:
    day = date(2027, 3, 31)
    entries = [ENTRY, {"name": "batch-2", "sha256": OTHER.upper(), "requests_per_minute": 60}]
    entries[1] |= {"expires": day, "cache_salt": True}
    expected = (
        Key("triage", bytes.fromhex(DIGEST)),
        Key("batch-2", bytes.fromhex(OTHER), 60, day, salted=True),
    )
    assert expected == load_keys(written(tmp_path, {"keys": entries}))
    assert expected == load_keys(written(tmp_path, json.dumps({"keys": entries}, default=str).encode()))


def test_while_a_key_is_rotated_two_have_one_name(tmp_path: Path) -> None:
    keys = load_keys(written(tmp_path, {"keys": [ENTRY, ENTRY | {"sha256": OTHER}]}))
    assert ["triage", "triage"] == [key.name for key in keys]


def test_a_file_may_hold_no_key_but_only_if_it_says_so(tmp_path: Path) -> None:
    assert () == load_keys(written(tmp_path, {"keys": []}))
    with pytest.raises(SettingsError):
        load_keys(written(tmp_path, b""))


WRONG: list[tuple[object, str]] = [
    (b"", "the file: must be an object"),
    ([ENTRY], "the file: must be an object"),
    ({}, "keys: is missing"),
    ({"keys": [ENTRY], "version": 1}, "a field: is not known"),
    ({"keys": ENTRY}, "keys: "),
    ({"keys": [ENTRY, {"name": "b"}]}, "keys.1.sha256: is missing"),
    ({"keys": [{"sha256": DIGEST}]}, "keys.0.name: is missing"),
    ({"keys": [ENTRY | {"name": "a b"}]}, "keys.0.name: "),
    ({"keys": [ENTRY | {"name": ""}]}, "keys.0.name: "),
    ({"keys": [ENTRY | {"name": "x" * 65}]}, "keys.0.name: "),
    ({"keys": [ENTRY | {"name": "x\n"}]}, "keys.0.name: "),
    ({"keys": [ENTRY | {"sha256": DIGEST[:-1]}]}, "keys.0.sha256: "),
    ({"keys": [ENTRY | {"requests_per_minute": 0}]}, "keys.0.requests_per_minute: "),
    ({"keys": [ENTRY | {"requests_per_minute": 1.5}]}, "keys.0.requests_per_minute: "),
    ({"keys": [ENTRY | {"requests_per_minute": True}]}, "keys.0.requests_per_minute: "),
    ({"keys": [ENTRY | {"expires": 20270331}]}, "keys.0.expires: must be a day such as 2027-03-31"),
    ({"keys": [ENTRY | {"expires": "soon"}]}, "keys.0.expires: must be a day"),
    ({"keys": [ENTRY | {"expires": datetime(2027, 3, 31, 12, tzinfo=UTC)}]}, "keys.0.expires: must be a day"),
    ({"keys": [ENTRY | {"cache_salt": "yes"}]}, "keys.0.cache_salt: "),
    ({"keys": [ENTRY, ENTRY | {"name": "b"}]}, "keys.1 has the same sha256 as keys.0"),
    ({"keys": [ENTRY, ENTRY | {"sha256": DIGEST.upper()}]}, "keys.1 has the same sha256 as keys.0"),
    (b"keys: [", "is neither JSON nor YAML"),
    (b"\xff\xfe\x00", "is neither JSON nor YAML"),
    (b"keys: !!python/object:os.system {}", "is neither JSON nor YAML"),
    (b"[" * 5000, "is neither JSON nor YAML"),
]


@pytest.mark.parametrize(("content", "message"), WRONG)
def test_a_file_that_is_wrong_is_refused_with_its_name_and_the_place(
    tmp_path: Path, content: object, message: str
) -> None:
    file = written(tmp_path, content)
    with pytest.raises(SettingsError) as caught:
        load_keys(file)
    assert caught.value.message.startswith(f"the keys file {file}")
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=r"cannot be read: (No such file|Is a directory)"):
        load_keys(str(tmp_path / name))


@pytest.mark.parametrize(
    "content",
    [
        {"keys": [{"name": "triage", "sha256": SECRET}]},
        {"keys": [{"name": "triage", "key": SECRET}]},
        {"keys": [{"name": "triage", SECRET: DIGEST}]},
        {"keys": [{"name": f"{SECRET} of ours", "sha256": DIGEST}]},
        {"keys": {SECRET: "triage"}},
        {SECRET: "triage"},
        {"keys": [SECRET]},
        SECRET,
        f"keys: [{SECRET}".encode(),
    ],
)
def test_a_key_that_stands_where_its_digest_belongs_is_not_repeated(tmp_path: Path, content: object) -> None:
    with pytest.raises(SettingsError) as caught:
        load_keys(written(tmp_path, content))
    assert SECRET not in caught.value.message


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_file_is_one_of_keys_or_a_wrong_setting(content: bytes) -> None:
    with TemporaryDirectory() as folder, pytest.raises(SettingsError):
        load_keys(written(Path(folder), content))


# Keys


def test_a_new_key_has_256_bits_and_can_be_told_as_one() -> None:
    keys = {new_key() for _ in range(50)}
    assert 50 == len(keys)
    for key in keys:
        assert key.startswith(KEY_PREFIX)
        assert 43 == len(key.removeprefix(KEY_PREFIX))  # base64 of 32 bytes


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=8, unique=True), st.binary(max_size=5))
def test_the_key_that_is_found_is_the_one_that_was_sent(known: list[bytes], sent: bytes) -> None:
    keys = [Key(f"key-{index}", digest_of(each)) for index, each in enumerate(known)]
    found = matching(keys, digest_of(sent))
    assert (keys[known.index(sent)] if sent in known else None) == found


def test_a_key_says_nothing_of_itself_in_its_salt() -> None:
    key = Key("triage", digest_of(SECRET.encode()), salted=True)
    again = Key("other-name", digest_of(SECRET.encode()), salted=True)
    assert key.cache_salt == again.cache_salt
    assert key.cache_salt not in (DIGEST, SECRET)
    assert key.cache_salt != Key("triage", digest_of(b"other"), salted=True).cache_salt
    assert "" == Key("triage", digest_of(SECRET.encode())).cache_salt


@pytest.mark.parametrize(
    "wrong", [{"name": "a b"}, {"name": "-a"}, {"digest": b"short"}, {"requests_per_minute": 0}]
)
def test_a_key_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"name|SHA-256|requests_per_minute"):
        Key(**({"name": "triage", "digest": bytes(32)} | wrong))


# Limits


class Clock:
    """Seconds that go on when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(
    st.integers(1, 4) | st.integers(1, 120),
    st.lists(st.sampled_from((0.0, 0.0, 0.0, 1.0, 20.0, 90.0)) | st.floats(0, 90), min_size=1, max_size=100),
)
def test_no_stretch_of_time_has_more_than_its_minutes_and_one_more(
    per_minute: int, pauses: list[float]
) -> None:
    clock = Clock()
    limiter = RateLimiter(clock)
    taken: list[float] = []
    for pause in pauses:
        clock.now += pause
        if limiter.take("triage", per_minute) == 0:
            taken.append(clock.now)
    for first, begun in enumerate(taken):
        for last, ended in enumerate(taken[first:], 1):
            assert last <= per_minute * (1 + (ended - begun) / 60) + 1e-6


@given(st.integers(1, 600))
def test_whoever_waits_for_as_long_as_is_said_gets_in(per_minute: int) -> None:
    clock = Clock()
    limiter = RateLimiter(clock)
    assert [0.0] * per_minute == [limiter.take("triage", per_minute) for _ in range(per_minute)]
    wait = limiter.take("triage", per_minute)
    assert 0 < wait <= 60 / per_minute
    clock.now += wait + 1e-6
    assert 0 == limiter.take("triage", per_minute)


def test_keys_of_other_names_have_buckets_of_their_own_and_those_of_one_name_share() -> None:
    limiter = RateLimiter(Clock())
    assert (0, 0) == (limiter.take("a", 1), limiter.take("b", 1))
    assert limiter.take("a", 1) > 0


def test_a_bucket_outlives_a_new_file_only_if_its_name_does() -> None:
    limiter = RateLimiter(Clock())
    limiter.take("a", 1)
    limiter.take("b", 1)
    limiter.keep({"a"})
    assert limiter.take("a", 1) > 0
    assert 0 == limiter.take("b", 1)


# The gate


@pytest.mark.parametrize(("day", "taken"), [(30, True), (31, False)])
async def test_a_key_is_taken_until_the_day_on_which_it_expires(day: int, taken: bool) -> None:
    gate = Gate(today=lambda: date(2027, 3, day))
    gate.use_file((Key("triage", digest_of(SECRET.encode()), expires=date(2027, 3, 31)),))
    if taken:
        assert "triage" == (await gate.admit(f"Bearer {SECRET}")).name
    else:
        with pytest.raises(WrongKey, match="expired"):
            await gate.admit(f"Bearer {SECRET}")


async def test_an_empty_file_shuts_a_gate_that_is_open_without_it() -> None:
    assert Gate().open
    gate = Gate()
    gate.use_file(())
    assert not gate.open
    with pytest.raises(WrongKey):
        await gate.admit(f"Bearer {SECRET}")


async def test_fixed_keys_have_names_by_their_place_and_no_limits() -> None:
    gate = Gate(["one", "zwei ü"])
    assert ("api-key-1", "api-key") == ((first := await gate.admit("Bearer one")).name, first.label)
    sent = "zwei ü".encode().decode("latin-1")  # as servers give headers to applications
    assert "api-key-2" == (await gate.admit(f"bearer   {sent} ")).name
    assert not gate.open


async def test_a_new_file_gives_no_key_that_stays_in_it_a_fresh_start() -> None:
    gate, keys = Gate(limiter=RateLimiter(Clock())), (Key("triage", digest_of(b"key"), 1),)
    gate.use_file(keys)
    await gate.admit("Bearer key")
    gate.use_file(keys)
    with pytest.raises(RateLimited):
        await gate.admit("Bearer key")
    gate.use_file(())
    gate.use_file(keys)
    await gate.admit("Bearer key")


async def test_two_keys_of_one_name_share_its_limit() -> None:
    gate = Gate(limiter=RateLimiter(Clock()))
    gate.use_file(tuple(Key("triage", digest_of(key), 1) for key in (b"old", b"new")))
    await gate.admit("Bearer old")
    with pytest.raises(RateLimited) as caught:
        await gate.admit("Bearer new")
    assert 60 == caught.value.retry_after_s


@given(st.text(st.characters(max_codepoint=255), max_size=30) | st.none())
async def test_whatever_the_header_holds_nobody_else_gets_in(header: str | None) -> None:
    gate = Gate(["the-only-key"])
    with pytest.raises((MissingKey, WrongKey)):
        await gate.admit(header)
