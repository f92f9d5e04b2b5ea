"""The server under test: a process of our own without keys and one with, or the one that was named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from typesafe_sdk import TypeSafeClient

from tests.conformance.faults import Front, front_before
from tests.conformance.target import Target
from tests.proxy import launch_proxy

GIVEN_URL = os.environ.get("CONFORMANCE_URL", "").rstrip("/")
GIVEN_KEY = os.environ.get("CONFORMANCE_KEY") or None
OUR_KEY = "sk-conformance"
DOORS = ("open", "keyed") if not GIVEN_URL else ("keyed",) if GIVEN_KEY else ("open",)


@contextmanager
def _own_process(log_folder: pytest.TempPathFactory, *arguments: str, key: str | None) -> Iterator[Target]:
    # The flag lets the model start in containers too; it changes nothing in what is answered.
    started = ["--backend", "embedded", "--allow-demo-model", *arguments]
    proxy = launch_proxy(log_folder.mktemp("conformance") / "log", started)
    try:
        proxy.wait_until_ready()
        yield Target(proxy.url, key, text_only=True)
    finally:
        proxy.stop()


@pytest.fixture(scope="session")
def open_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Serve without keys."""
    if not GIVEN_URL:
        with _own_process(tmp_path_factory, key=None) as target:
            yield target
    elif GIVEN_KEY:
        pytest.skip("the server that was named has keys")
    else:
        yield Target(GIVEN_URL)


@pytest.fixture(scope="session")
def keyed_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Serve with a key."""
    if not GIVEN_URL:
        with _own_process(tmp_path_factory, "--api-key", OUR_KEY, key=OUR_KEY) as target:
            yield target
    elif GIVEN_KEY:
        yield Target(GIVEN_URL, GIVEN_KEY)
    else:
        pytest.skip("the server that was named has no keys, or its key was not told")


@pytest.fixture(scope="session", params=DOORS)
def target(request: pytest.FixtureRequest) -> Target:
    """Give each server under test in turn."""
    target: Target = request.getfixturevalue(f"{request.param}_target")
    return target


@pytest.fixture(scope="session")
def sdk(target: Target) -> Iterator[TypeSafeClient]:
    """Talk to it through the SDK."""
    with target.sdk() as client:
        yield client


@pytest.fixture(scope="session")
def http(target: Target) -> Iterator[httpx.Client]:
    """Talk to it without an SDK."""
    with target.http() as client:
        yield client


@pytest.fixture(scope="session")
def _shared_front(target: Target) -> Iterator[Front]:
    with front_before(target.url) as front:
        yield front


@pytest.fixture
def front(_shared_front: Front) -> Front:
    """Put a front before it that goes wrong as it is told, and has seen nothing yet."""
    _shared_front.next()
    return _shared_front
