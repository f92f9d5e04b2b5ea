"""The real server with the embedded model, shared by all tests of bulk labelling, and files to label."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.bulk.labelling import QUESTIONS, write_csv
from tests.bulk.sixty import QUESTION, ROWS, Files


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
