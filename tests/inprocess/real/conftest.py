"""The process that hosts transformers backends: one for all tests, since importing torch takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.inprocess.real.hosted import Hosted


@pytest.fixture(scope="session")
def process() -> Iterator[Hosted]:
    """Share one process."""
    process = Hosted("inprocess")
    yield process
    process.close()


@pytest.fixture
def hosted(process: Hosted) -> Hosted:
    """Host a new backend, which has yet to be prepared."""
    process.make()
    return process


@pytest.fixture
def ready(hosted: Hosted) -> Hosted:
    """Host a new backend that is ready."""
    hosted.ready()
    return hosted
