"""vLLM's example server over chat: the system message holds the questions, the user message the state.

The reply's content is the answers as JSON, in that server's names: an option's probability stands under its
name, a score counts from 1, `confidence` is the top probability.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, ValidationError
from pydantic_core import from_json

from structured_server.core.answers import Answer, Reason, Skipped
from structured_server.core.plan import ReadOptions, located
from structured_server.core.questions import Choice, Noul, Question, Schema, Score
from structured_server.core.reads import Image
from structured_server.driver import Outcome
from structured_server.errors import CallerError, InvalidQuestion, InvalidRequest, Path
from structured_server.wire.decide_rendering import particulars, usage_of
from structured_server.wire.extensions import Conditional, Extensions, Lenient
from structured_server.wire.fields import MAX_IMAGES, Text, text_or_none
from structured_server.wire.images import data_url_image
from structured_server.wire.systemone import SystemOneNoulCriteria
from structured_server.wire.validation import caller_error

MESSAGES = ("messages", 0, "content")


class _Listed(Conditional):
    id: str = Field(min_length=1)
    instructions: Text = None


class NoulListed(_Listed):
    """A yes/no question."""

    type: Literal["noul", "bool", "boolean"]
    criteria: SystemOneNoulCriteria | None = None


class OptionListed(Lenient):
    """An option with what it means."""

    name: str
    description: Text = None


class ChoiceListed(_Listed):
    """One of several options."""

    type: Literal["choice"]
    options: list[str | OptionListed]


class ScoreListed(_Listed):
    """A rubric of levels, from the lowest."""

    type: Literal["score"]
    levels: list[str | int | float]


class SchemaMessage(Extensions):
    """The questions, and how to read them."""

    questions: list[Annotated[NoulListed | ChoiceListed | ScoreListed, Field(discriminator="type")]] = Field(
        min_length=1
    )


class SchemaQuery:
    """A schema message with its state, as the core knows them."""

    model = None  # that server answers to any name

    def __init__(
        self, asked: SchemaMessage, state: str, pictures: tuple[Image, ...], seed: int | None
    ) -> None:
        self.deadline_ms = asked.deadline_ms
        self.seed = asked.seed if seed is None else seed
        self.long_state = asked.long_state
        self.require_draws = asked.require_draws
        self.read_policy = asked.read_policy
        self.pictures = pictures
        self._asked = asked
        self._state = state

    def state_text(self) -> str:
        """Return the state as the model is shown it."""
        return self._state

    def schema_of_questions(self) -> Schema:
        """Return the questions as the core knows them.

        Raises:
            InvalidRequest: a question breaks one of its invariants.
        """
        try:
            return self._asked.schema_of((each.id, _question(each), each) for each in self._asked.questions)
        except InvalidRequest as error:
            raise _within_message(error) from None

    def read_options(self, defaults: ReadOptions) -> ReadOptions:
        """Return the request's options over the server's, read jointly as that server does."""
        joint = defaults if self._asked.isolate else replace(defaults, isolate="none")
        return self._asked.read_options(joint)


def schema_query(asked: dict[str, Any]) -> SchemaQuery | None:
    """Return the query that a chat request holds, None where it is one for plain generation.

    Raises:
        InvalidRequest: its system message is an object with questions, and something in it is wrong.
    """
    messages = asked.get("messages")
    if not isinstance(messages, list) or len(messages) != 2 or not all(isinstance(m, dict) for m in messages):
        return None
    system, user = messages
    if system.get("role") not in ("system", "developer") or user.get("role") != "user":
        return None
    text = _text_of(system.get("content"))
    try:
        said = from_json(text or "")
    except ValueError:
        return None
    if not isinstance(said, dict) or "questions" not in said:
        return None
    try:
        schema = SchemaMessage.model_validate_json(text or "")
    except ValidationError as error:
        raise _within_message(caller_error(error, SchemaMessage)) from None
    content, seed = user.get("content"), asked.get("seed")
    # That server reads the seed of the chat request; the message's own stands in where there is none.
    return SchemaQuery(
        schema, _text_of(content) or "", _pictures(content), seed if type(seed) is int else None
    )


def render(
    outcome: Outcome, *, identifier: str, model: str, backend: str, model_revision: str | None
) -> dict[str, Any]:
    """Return the body of a 200: a chat completion whose content is the answers."""
    decision = outcome.decision
    steps = decision.plan.options.steps
    questions = dict(decision.plan.schema.questions)
    labels = {
        name: asked.labels
        for group in decision.plan.groups
        for name, asked in zip(group.identifiers, group.asked, strict=True)
    }
    content = {
        "answers": {name: _answer(each, labels[name]) for name, each in decision.answers.items()},
        "diagnostics": {
            "steps": steps,
            "stages": [
                [name for group in stage for name in group.identifiers] for stage in decision.plan.stages
            ],
            "skipped": {
                name: _why(each.reason, questions)
                for name, each in decision.answers.items()
                if isinstance(each, Skipped)
            },
            "chunks": [list(group.identifiers) for group in decision.plan.groups],
            "timing": {"total_ms": outcome.total_ms, "reads": len(decision.reads)},
            "questions": {
                name: {"entropy": [each.first_entropy], "label_mass": each.distribution.label_mass}
                for name, each in decision.answers.items()
                if isinstance(each, Answer)
            },
            "engine": backend,
        },
    }
    usage = usage_of(decision)
    return {
        "id": f"chatcmpl-{identifier}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": orjson.dumps(content).decode()},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": usage["input_tokens"],
            "completion_tokens": usage["output_tokens"],
            "total_tokens": usage["input_tokens"] + usage["output_tokens"],
        },
        "x_decision": particulars(
            outcome, identifier=identifier, backend=backend, model_revision=model_revision
        ),
    }


def _within_message(error: CallerError) -> InvalidRequest:
    """Return an error of a schema with its path counted from the request."""
    return InvalidRequest(error.predicate, path=(*MESSAGES, *error.path), hint=error.hint)


def _question(given: NoulListed | ChoiceListed | ScoreListed) -> Question:
    try:
        instructions = text_or_none(given.instructions, ("instructions",))
        if isinstance(given, NoulListed):
            criteria = given.criteria or SystemOneNoulCriteria()
            return Noul(
                instructions,
                text_or_none(criteria.true, ("criteria", "true")),
                text_or_none(criteria.false, ("criteria", "false")),
            )
        if isinstance(given, ChoiceListed):
            return Choice(instructions, tuple(_option(each, i) for i, each in enumerate(given.options)))
        return Score(instructions, tuple(map(str, given.levels)))
    except InvalidQuestion as error:
        raise located(error, given.id) from None


def _option(given: str | OptionListed, index: int) -> tuple[str, str | None]:
    if isinstance(given, str):
        return given, None
    return given.name, text_or_none(given.description, ("options", index, "description"))


def _why(reason: Reason, questions: Mapping[str, Question]) -> dict[str, Any]:
    """Say why a question was not asked, with answers in the words that the model is shown."""
    assert reason.question is not None, "a question that was not asked waited for one"
    words = {option.key: option.word for option in questions[reason.question].options}
    was = None if reason.value is None else words[str(reason.value)]
    wanted = reason.limit if isinstance(reason.limit, list) else []
    return {"because": reason.question, "was": was, "wanted": [words[key] for key in wanted]}


def _answer(answer: Answer | Skipped, labels: Sequence[str]) -> dict[str, Any] | None:
    if isinstance(answer, Skipped):
        return None
    question, reading = answer.question, answer.distribution
    names = _names(question)
    body: dict[str, Any] = {
        "type": question.kind,
        "label": labels[reading.mode],
        "confidence": reading.top_probability,
        "probabilities": dict(zip(names, reading.probabilities, strict=True)),
    }
    if isinstance(question, Noul):
        body["noul"] = answer.headline
    elif isinstance(question, Score):
        body["score"] = answer.headline + 1
        body["level"] = names[reading.mode]
    else:
        body["choice"] = names[reading.mode]
    if answer.draws > 1:
        body |= {"stderr": answer.standard_error, "agreement": answer.agreement}
    return body


def _names(question: Question) -> Sequence[str]:
    """Return what the reply calls the options: a noul's yes and no, all else as the caller wrote it."""
    if isinstance(question, Score):
        return question.levels
    return [option.key if isinstance(question, Choice) else option.word for option in question.options]


def _text_of(content: Any) -> str | None:
    """Return a message's text, its text parts joined; None where it is neither text nor parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        return "".join(text for text in texts if isinstance(text, str))
    return None


def _pictures(content: Any) -> tuple[Image, ...]:
    parts = content if isinstance(content, list) else []
    images = []
    for index, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") == "image_url":
            path: Path = ("messages", 1, "content", index, "image_url")
            given = part.get("image_url")
            url = given.get("url") if isinstance(given, dict) else given
            if not isinstance(url, str):
                raise InvalidRequest("needs a url.", path=path)
            images.append(data_url_image(url, path))
    if len(images) > MAX_IMAGES:
        raise InvalidRequest(
            f"may hold at most {MAX_IMAGES} images, got {len(images)}.", path=("messages", 1)
        )
    return tuple(images)
