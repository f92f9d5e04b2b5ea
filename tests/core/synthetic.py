"""Replies and drivers made by hand: what a backend would have said, without one."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

from structured_server.core.answers import Answer
from structured_server.core.decision import Decision, conclude
from structured_server.core.plan import Capabilities, Group, Plan, ReadOptions, compile_plan
from structured_server.core.policy import ReadPolicy
from structured_server.core.questions import Question, Schema
from structured_server.core.reading import Arrangement, Batch, GroupJob, GroupReading, Reply, read_group
from structured_server.core.reads import Prompt, Read, Row, label_chunks
from structured_server.core.stage import answers_of
from tests.toy import ToyTokenizer

WIDTHS = (16, 32, 48, 64)
CAPABILITIES = Capabilities(WIDTHS, max_label_ids=128, max_model_len=None)
SEED = bytes(range(32))
TOY = ToyTokenizer()


def schema(**questions: Question) -> Schema:
    """Return a question set with the arguments' names as ids."""
    return Schema(tuple(questions.items()))


def plan(
    questions: Schema,
    options: ReadOptions = ReadOptions(),  # noqa: B008  frozen
    capabilities: Capabilities = CAPABILITIES,
    tokenizer: ToyTokenizer = TOY,
) -> Plan:
    """Compile a plan with the toy tokenizer."""
    return compile_plan(questions, options, capabilities, tokenizer)


def job(group: Group, *, mask: int | None = None, seed: bytes = SEED, cap: int | None = None) -> GroupJob:
    """Return a group about to be read, with a prompt of three tokens."""
    return GroupJob(
        group,
        (Arrangement(Prompt((1, 2, 3)), group.asked),),
        seed,
        TOY.noise_ids,
        label_chunks(group.canvas.label_ids, cap),
        mask,
    )


def log(probability: float) -> float:
    """Return the logarithm, -inf for 0."""
    return math.log(probability) if probability > 0 else -math.inf


def saying(group: Group, *probabilities: Sequence[float], mass: float = 1.0, top: int | None = None) -> Read:
    """Return the read of a model that believes this of the questions, with `mass` on the labels."""
    rows = []
    for slot, believed in zip(group.canvas.slots, probabilities, strict=True):
        row = dict.fromkeys(group.canvas.label_ids, -math.inf)
        row |= {ids[0]: log(mass * p) for ids, p in zip(slot.options, believed, strict=True)}
        rows.append(Row(row, top))
    return Read(tuple(rows), prompt_tokens=3)


def drive(
    steps: Generator[Batch, Reply, GroupReading], answer: Callable[[Batch], Reply]
) -> tuple[list[Batch], GroupReading]:
    """Drive a group's generator to its end; return what it asked for, and what it made of the replies."""
    batches = [next(steps)]
    while True:
        try:
            batches.append(steps.send(answer(batches[-1])))
        except StopIteration as end:
            reading: GroupReading = end.value
            return batches, reading


def read_with(
    group: Group, policy: ReadPolicy, draws: Sequence[Sequence[Sequence[float]]], *, mass: float = 1.0
) -> tuple[list[Batch], GroupReading]:
    """Drive a group whose draw number k says `draws[k]`: for each question, its options' probabilities."""
    said = iter(draws)
    return drive(
        read_group(job(group), policy),
        lambda batch: [saying(group, *next(said), mass=mass) for _ in batch.requests],
    )


def concluded(compiled: Plan, readings: Sequence[GroupReading]) -> Decision:
    """Fold the readings of all groups into answers, and conclude."""
    answers = {name: answer for reading in readings for name, answer in answers_of(reading).items()}
    return conclude(compiled, readings, answers, TOY.token_text)


def answers(decision: Decision) -> dict[str, Answer]:
    """Return the answers to the questions that were read."""
    return {name: answer for name, answer in decision.answers.items() if isinstance(answer, Answer)}
