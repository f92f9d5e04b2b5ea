"""Jobs as the server makes them, of questions that the toy tokenizer plans."""

from __future__ import annotations

from collections.abc import Mapping

from structured_server.core.plan import Capabilities, Plan, ReadOptions, compile_plan
from structured_server.core.policy import ReadPolicy
from structured_server.core.prompt import Answered
from structured_server.core.questions import Schema
from structured_server.core.reading import GroupJob
from structured_server.core.reads import ReadRequest
from structured_server.core.stage import OpenGroup
from structured_server.jobs import Frame, JobMaker, Matter
from tests.core.synthetic import CAPABILITIES
from tests.toy import LABELS, ToyTokenizer

LETTERED = ToyTokenizer([*LABELS, *"ABCDEFGHIJKL"], scaffold=True)
MATTER = Matter("the state", seed=7)
FOUR = ReadPolicy(samples=4)
NO_ANSWERS: Mapping[str, int] = {}


def opened(compiled: Plan, name: str, answers: Mapping[str, int] = NO_ANSWERS) -> OpenGroup:
    """Open the group of a question. What comes before it has the answers given, or its first option."""
    [group] = [group for group in compiled.groups if name in group.identifiers]
    return OpenGroup(group, tuple(Answered(asked, answers.get(name, 0)) for name, asked in group.given))


def job_of(
    asked: Schema,
    name: str,
    options: ReadOptions,
    *,
    answers: Mapping[str, int] = NO_ANSWERS,
    matter: Matter = MATTER,
    policy: ReadPolicy = FOUR,
    capabilities: Capabilities = CAPABILITIES,
    tokenizer: ToyTokenizer = LETTERED,
) -> GroupJob:
    """Make the job that reads a question."""
    compiled = compile_plan(asked, options, capabilities, tokenizer)
    maker = JobMaker(Frame.around(compiled, capabilities, tokenizer), matter)
    return maker.job(opened(compiled, name, answers), policy)


def requests_of(made: GroupJob, draws: int = 2) -> list[ReadRequest]:
    """Return the reads of the first draws, of every chunk of label ids."""
    return [made.request(draw, chunk) for draw in range(draws) for chunk in range(len(made.chunks))]
