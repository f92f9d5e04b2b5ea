"""Files that are re-read: a right version comes into force, a wrong one changes nothing and is told once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from structured_server.errors import SettingsError
from structured_server.watched_file import POLL_S, WatchedFile
from tests.shell.simulated_time import now, simulated


def _load(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise SettingsError(f"{path} holds no number.") from None


class Watched:
    """A watched file of one number, with what became of it."""

    def __init__(self, path: Path, load: Callable[[str], int] = _load) -> None:
        self.used: list[int] = []
        self.wrong: list[bool] = []
        self.path = path
        self.file = WatchedFile(
            "number", str(path), load=load, use=self.used.append, report=self.wrong.append
        )

    def write(self, text: str) -> None:
        """Replace the file, as it should be: a rename changes it at once."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)

    @property
    def is_wrong(self) -> bool:
        """What was reported last."""
        return self.wrong[-1]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    """A file that holds 1 and has been read."""
    watched = Watched(tmp_path / "number")
    watched.write("1")
    watched.file.begin()
    return watched


async def test_a_new_version_comes_into_force_at_the_next_look(watched: Watched) -> None:
    assert ([1], False) == (watched.used, watched.is_wrong)
    await watched.file.look()
    assert [1] == watched.used, "it was as it had been"
    watched.write("2")
    await watched.file.look()
    await watched.file.look()
    assert ([1, 2], False) == (watched.used, watched.is_wrong)


async def test_a_version_of_the_same_size_and_time_is_seen(watched: Watched) -> None:
    before = watched.path.stat()
    watched.write("2")
    os.utime(watched.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await watched.file.look()
    assert [1, 2] == watched.used


async def test_a_file_that_is_written_in_place_is_seen(watched: Watched) -> None:
    before = watched.path.stat()
    watched.path.write_text("3")
    os.utime(watched.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    await watched.file.look()
    assert [1, 3] == watched.used


async def test_a_wrong_version_changes_nothing_and_is_told_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("two")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            await watched.file.look()
    assert ([1], True) == (watched.used, watched.is_wrong)
    (record,) = caplog.records
    assert "ERROR" == record.levelname
    assert record.getMessage() == (
        f"a new version is not taken, the one before stays in force: {watched.path} holds no number."
    )


async def test_each_wrong_version_is_told(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("two", "three"):
        watched.write(text)
        await watched.file.look()
    assert 2 == len(caplog.records)


async def test_when_it_is_right_again_that_is_reported(watched: Watched) -> None:
    watched.write("two")
    await watched.file.look()
    watched.write("3")
    await watched.file.look()
    assert ([1, 3], False) == (watched.used, watched.is_wrong)


async def test_a_file_that_is_gone_stays_in_force_until_it_is_back(watched: Watched) -> None:
    watched.path.unlink()
    await watched.file.look()
    await watched.file.look()
    assert ([1], True) == (watched.used, watched.is_wrong)
    watched.write("1")
    await watched.file.look()
    assert ([1, 1], False) == (watched.used, watched.is_wrong)


async def test_a_mounted_configuration_that_is_swapped_by_links_is_seen(tmp_path: Path) -> None:
    """Kubernetes mounts `file -> ..data/file` and `..data -> ..version`, and moves the second link."""
    for version, text in (("..one", "1"), ("..two", "2")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "number").write_text(text)
        os.utime(tmp_path / version / "number", ns=(10**18, 10**18))
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "number").symlink_to("..data/number")
    watched = Watched(tmp_path / "number")
    watched.file.begin()
    (tmp_path / "..data_tmp").symlink_to("..two")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    await watched.file.look()
    assert [1, 2] == watched.used


async def test_what_fails_once_is_tried_again_although_the_file_is_as_it_was(tmp_path: Path) -> None:
    failing = False

    def load(path: str) -> int:
        if failing:
            raise SettingsError("the disk failed.")
        return _load(path)

    watched = Watched(tmp_path / "number", load)
    watched.write("1")
    watched.file.begin()
    watched.write("2")
    failing = True
    await watched.file.look()
    assert ([1], True) == (watched.used, watched.is_wrong)
    failing = False
    await watched.file.look()
    assert ([1, 2], False) == (watched.used, watched.is_wrong)


async def test_a_version_that_changes_while_it_is_read_waits_for_the_next_look(tmp_path: Path) -> None:
    def load(path: str) -> int:
        value = _load(path)
        if value == 2:
            changing.write("3")
        return value

    changing = Watched(tmp_path / "number", load)
    changing.write("1")
    changing.file.begin()
    changing.write("2")
    await changing.file.look()
    assert [1] == changing.used
    await changing.file.look()
    assert [1, 3] == changing.used


async def test_a_bug_in_a_check_ends_nothing_and_its_message_is_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def load(path: str) -> int:
        if _load(path) == 2:
            raise KeyError("what stands in it")
        return _load(path)

    watched = Watched(tmp_path / "number", load)
    watched.write("1")
    watched.file.begin()
    watched.write("2")
    await watched.file.look()
    assert ([1], True) == (watched.used, watched.is_wrong)
    assert "KeyError" in caplog.text
    assert "what stands in it" not in caplog.text


def test_what_is_wrong_from_the_beginning_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        Watched(tmp_path / "number").file.begin()


def test_it_is_looked_at_every_second(tmp_path: Path) -> None:
    looks: list[float] = []

    class Ended(Exception):
        """Ends the watch."""

    class Looking(WatchedFile[int]):
        async def look(self) -> None:
            looks.append(now())
            if len(looks) == 3:
                raise Ended

    @simulated
    async def watch() -> None:
        file = Looking("n", str(tmp_path), load=_load, use=looks.append, report=looks.append)
        with pytest.raises(Ended):
            await file.watch()

    watch()
    assert [POLL_S, 2 * POLL_S, 3 * POLL_S] == looks
    assert 1 == POLL_S
