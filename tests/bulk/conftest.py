"""The real server with the embedded model, shared by all tests of bulk labelling, and files to label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.bulk.labelling import QUESTIONS, write_csv
from tests.bulk.sixty import QUESTION, ROWS, Files
from tests.proxy import launch_proxy


@pytest.fixture(scope="session")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that is ready at every width."""
    proxy = launch_proxy(
        tmp_path_factory.mktemp("embedded") / "log",
        ("--backend", "embedded", "--allow-demo-model", "--log-level", "warning"),
    )
    try:
        proxy.wait_until_ready()
        yield proxy.url
    finally:
        proxy.stop()


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A file of questions that the embedded model was taught."""
    file = tmp_path / "questions.yaml"
    file.write_text(yaml.safe_dump(QUESTIONS, sort_keys=False))
    return file


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Sixty rows, no output yet, and one question."""
    questions = tmp_path / "q.yaml"
    questions.write_text(yaml.safe_dump(QUESTION))
    return write_csv(tmp_path / "in.csv", ROWS), tmp_path / "out.csv", questions
