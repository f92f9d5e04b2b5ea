"""`POST /decide/lint`: its request, its documented response, and how a report becomes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from structured_server.core.changes import find_changes
from structured_server.core.lint import GroupReport, QuestionReport, lint
from structured_server.core.lint_facts import Facts
from structured_server.core.provenance import METHOD
from structured_server.core.tokens import Tokenizer
from structured_server.errors import InvalidRequest
from structured_server.wire.decide_request import Asking
from structured_server.wire.decide_response import WarningOut
from structured_server.wire.fields import WHOLE, State, text_of_state

LONGEST_STATE = 10_000_000

AGAINST = "against"


class LintRequest(Asking):
    """Typed questions to look at before they are asked."""

    state: State | None = Field(None, description="A state, to count its tokens.")
    longest_state_tokens: Annotated[int, Field(ge=0, le=LONGEST_STATE), WHOLE] | None = Field(
        None, description="Tokens of the longest state that will come."
    )
    against: Asking | None = Field(
        None, description="Earlier questions, with how they were read: says what moves numbers since."
    )

    def state_text(self) -> str | None:
        """Return the state as the model is shown it, None where none is given.

        Raises:
            InvalidRequest: the JSON holds a number that JSON text cannot carry.
        """
        return None if self.state is None else text_of_state(self.state, ("state",))


class _Out(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EngineOut(_Out):
    """What the engine holds, as far as it is known. Null is no limit, or one that is not known yet."""

    ready: bool | None = Field(description="Null where no engine was asked.")
    widths: list[int] = Field(description="Canvas widths in tokens.")
    max_label_ids: int | None = Field(description="Label ids that one read may ask for.")
    max_model_len: int | None = Field(description="Tokens of prompt and canvas together.")


class LintedQuestion(_Out):
    """A question in its canvas."""

    id: str
    key: str = Field(description="Names the question in prompt and canvas.")
    type: Literal["noul", "choice", "score"]
    labels: dict[str, str] = Field(description="The label of each option, by the keys of `probabilities`.")
    aliases: dict[str, str] = Field(description="Those of them that are not the option's own word.")
    label_ids: int = Field(description="Ids of its labels, white-space variants included.")


class LintedGroup(_Out):
    """Questions that share a canvas."""

    stage: int = Field(description="From 0; a stage's groups are read at the same time.")
    questions: list[LintedQuestion]
    canvas: str = Field(description="The canvas as text without its padding, slots as ⟦id⟧.")
    opening: str | None = Field(description="The text of earlier answers that the canvas goes on from.")
    width: int = Field(description="Tokens of the canvas.")
    padding: int = Field(description="Of those, padding.")
    label_ids: int = Field(description="Different label ids, over all slots.")
    reads_per_draw: int
    prompt_tokens: int = Field(description="At most; with the state, if one was given.")


class ReadsOut(_Out):
    """Reads of one decision, and the prompt tokens that they send, at most."""

    samples: int | Literal["auto"]
    one_draw: int
    auto_at_most: int
    as_asked: int
    prompt_tokens_of_a_draw: int
    prompt_tokens_as_asked: int


class TokensOut(_Out):
    """Tokens against the engine's context. Null where the engine does not say, or no state was given."""

    around_state: int = Field(description="Prompt and canvas without a state, in the longest group.")
    limit: int | None
    room: int | None = Field(description="For a state.")
    state: int | None = Field(description="Of the state that was given.")
    longest_state: int | None = Field(description="As given.")


class ChangeOut(_Out):
    """Something that is not as it was."""

    code: str
    question: str | None = None
    message: str
    moves: list[str] = Field(description="Questions whose numbers it moves.")


class AgainstOut(_Out):
    """What moves numbers since the earlier questions."""

    changes: list[ChangeOut]
    moves: list[str] = Field(description="All questions whose numbers move.")
    question_set: str
    fingerprint: str = Field(description="Of the earlier questions.")


class LintProvenance(_Out):
    """Names of what was looked at."""

    method: str
    question_set: str
    fingerprint: str


class LintResponse(_Out):
    """What a question set comes to."""

    model: str | None
    engine: EngineOut
    groups: list[LintedGroup]
    reads: ReadsOut
    tokens: TokensOut
    warnings: list[WarningOut]
    against: AgainstOut | None
    provenance: LintProvenance


@dataclass(frozen=True, slots=True)
class Linted:
    """A question set, measured, with its names."""

    facts: Facts
    question_set: str
    fingerprint: str


@contextmanager
def within_against() -> Iterator[None]:
    """Name the earlier questions in the path of an error about them.

    Raises:
        InvalidRequest: one was raised, about the field that it names there.
    """
    try:
        yield
    except InvalidRequest as error:
        raise type(error)(error.predicate, path=(AGAINST, *error.path), hint=error.hint) from None


def render(
    linted: Linted,
    against: Linted | None,
    tokenizer: Tokenizer,
    *,
    model: str | None,
    ready: bool | None,
) -> dict[str, Any]:
    """Return the body of a 200, in the shape of `LintResponse`."""
    facts = linted.facts
    report = lint(facts, tokenizer)
    capabilities = facts.capabilities
    return {
        "model": model,
        "engine": {
            "ready": ready,
            "widths": list(capabilities.widths),
            "max_label_ids": capabilities.max_label_ids,
            "max_model_len": capabilities.max_model_len,
        },
        "groups": [_group(group) for group in report.groups],
        "reads": {"samples": facts.policy.samples, **asdict(report.cost)},
        "tokens": {
            "around_state": facts.tokens_around_state,
            "limit": capabilities.max_model_len,
            "room": facts.room,
            "state": facts.state_tokens,
            "longest_state": facts.longest_state_tokens,
        },
        "warnings": [_without_none(asdict(warning)) for warning in report.warnings],
        "against": None if against is None else _against(against, linted),
        "provenance": {
            "method": METHOD,
            "question_set": linted.question_set,
            "fingerprint": linted.fingerprint,
        },
    }


def _against(old: Linted, new: Linted) -> dict[str, Any]:
    changes = find_changes(old.facts, new.facts)
    moved = {name for change in changes for name in change.moves}
    return {
        "changes": [_without_none({**asdict(change), "moves": list(change.moves)}) for change in changes],
        "moves": [name for name, _ in new.facts.plan.schema.questions if name in moved],
        "question_set": old.question_set,
        "fingerprint": old.fingerprint,
    }


def _group(group: GroupReport) -> dict[str, Any]:
    return {
        "stage": group.stage,
        "questions": [_question(each) for each in group.questions],
        "canvas": group.text,
        "opening": group.opening,
        "width": group.width,
        "padding": group.padding,
        "label_ids": group.label_ids,
        "reads_per_draw": group.reads_per_draw,
        "prompt_tokens": group.prompt_tokens,
    }


def _question(report: QuestionReport) -> dict[str, Any]:
    asked = report.asked
    options = zip(asked.question.options, asked.labels, strict=True)
    return {
        "id": report.identifier,
        "key": asked.key,
        "type": asked.question.kind,
        "labels": {option.key: label for option, label in options},
        "aliases": asked.aliases,
        "label_ids": report.label_ids,
    }


def _without_none(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}
