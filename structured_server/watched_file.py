"""Files that are read again when they change. A version that is wrong leaves the one before it in force."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from structured_server.errors import SettingsError

POLL_S = 1.0

T = TypeVar("T")
_Version = tuple[int, ...] | None

log = logging.getLogger(__name__)


class WatchedFile(Generic[T]):
    """One file: `load` makes a value of it or refuses it, `use` puts the value in force.

    `report` hears whether the latest version is wrong. Its `name` stands for it in logs and metrics.
    """

    def __init__(
        self,
        name: str,
        path: str,
        *,
        load: Callable[[str], T],
        use: Callable[[T], None],
        report: Callable[[bool], None],
    ) -> None:
        self._name, self._path = name, path
        self._load, self._use, self._report = load, use, report
        self._seen: _Version = None
        self._problem = ""  # with the version that was seen last

    def begin(self) -> None:
        """Read it for the first time.

        Raises:
            SettingsError: it cannot be used.
        """
        self._seen = self._version()
        self._use(self._load(self._path))
        self._report(False)

    async def watch(self) -> None:
        """Look every second whether it changed. Never returns."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.look()

    async def look(self) -> None:
        """Take a version that has not been seen, if it is right. It is read in a thread: disks may be slow.

        One that is wrong is tried again at each look: a disk may have failed, and the file be as it was.
        """
        version = await asyncio.to_thread(self._version)
        if version == self._seen and not self._problem:
            return
        try:
            value = await asyncio.to_thread(self._load, self._path)
        except SettingsError as error:
            problem = error.message
        except Exception as error:  # a bug in a check must not end the watch, or let a version pass
            problem = f"{self._path}: reading it failed ({type(error).__name__})."
        else:
            if await asyncio.to_thread(self._version) != version:
                return  # it changed meanwhile, and may have been read half: the next look takes it
            self._seen, self._problem = version, ""
            self._use(value)
            self._report(False)
            log.info("the %s file was read again: %s", self._name, self._path)
            return
        self._report(True)
        if (version, problem) != (self._seen, self._problem):
            log.error("a new version is not taken, the one before stays in force: %s", problem)
        self._seen, self._problem = version, problem

    def _version(self) -> _Version:
        """Tell versions apart. Symbolic links are followed: Kubernetes changes where they lead."""
        try:
            found = Path(self._path).stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)
