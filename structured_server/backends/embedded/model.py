"""What the shipped model says of itself: name, thresholds, temperatures, what it was taught to answer."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from pydantic import BaseModel, ValidationError

from structured_server.core.answers import DecisionWarning
from structured_server.core.policy import ByType
from structured_server.core.questions import Choice, Noul, Question, Schema
from structured_server.errors import SettingsError

PACKAGED = Path(__file__).parents[2] / "data" / "triage"
WEIGHTS = "model.onnx"
_DESCRIPTION = "model.json"


@dataclass(frozen=True, slots=True)
class Domain:
    """The questions that a model was taught: nouls by id, choices and scores by their options' words."""

    noul: frozenset[str]
    choice: tuple[frozenset[str], ...]
    score: tuple[tuple[str, ...], ...]

    def covers(self, identifier: str, question: Question) -> bool:
        """Tell whether a question is one of them.

        Some of a choice's options are enough, in any order; a score needs all of its levels. Labels of the
        caller's own are words that the model never saw as answers.
        """
        if question.aliases:
            return False
        if isinstance(question, Noul):
            return identifier in self.noul
        words = tuple(option.word for option in question.options)
        if isinstance(question, Choice):
            return any(known.issuperset(words) for known in self.choice)
        return words in self.score


@dataclass(frozen=True, slots=True)
class DemoModel:
    """The shipped model. `folder` holds weights and tokenizer; `notice` says where it falls short, if so."""

    folder: Path
    revision: str
    name: str
    entropy_thresholds: ByType
    temperatures: ByType
    domain: Domain
    notice: str | None

    @property
    def weights(self) -> Path:
        """The file that holds the graph."""
        return self.folder / WEIGHTS

    def caveats(self, schema: Schema) -> tuple[DecisionWarning, ...]:
        """Return what every answer to these questions must say about the model."""
        outside = [
            DecisionWarning(
                "outside_demo_domain",
                "The embedded model was never taught this question: its answer means nothing.",
                identifier,
            )
            for identifier, question in schema.questions
            if not self.domain.covers(identifier, question)
        ]
        limits = [DecisionWarning("demo_model_limits", self.notice)] if self.notice else []
        return (*limits, *outside)


class _Description(BaseModel):
    """What is read of the description; it may say more."""

    name: str
    entropy_thresholds: ByType
    temperatures: ByType
    domain: Domain
    notice: str | None = None


def load_demo_model(folder: Path = PACKAGED) -> DemoModel:
    """Read the shipped model's description; its revision is a digest of its weights.

    Raises:
        SettingsError: the model is not in this installation, or not whole.
    """
    try:
        said = _Description.model_validate_json((folder / _DESCRIPTION).read_bytes())
        revision = blake2b((folder / WEIGHTS).read_bytes(), digest_size=8).hexdigest()
    except OSError as error:
        raise SettingsError(
            f"the embedded model is not in this installation: {error.filename} cannot be read."
        ) from None
    except ValidationError:
        raise SettingsError(f"{folder / _DESCRIPTION} does not describe a model.") from None
    return DemoModel(
        folder, revision, said.name, said.entropy_thresholds, said.temperatures, said.domain, said.notice
    )
