"""The names of vLLM's example server on System One: each does what it says; nonsense has its place told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.api.asking import (
    QUESTIONS,
    SEVERITY,
    SYSTEM_ONE,
    TEAM,
    TOKENIZER,
    URGENT,
    answered,
    believing,
    draws_of,
    prompts,
    system_one,
)
from tests.api.conftest import serving
from tests.fake_backend import FakeBackend

SURE = believing("yes", "networking", "low")
THOUGHT = "the pager is down"
MANY = {f"q{index}": {"type": "noul", "instructions": f"Is it {index}?"} for index in range(8)}


@pytest.fixture
def backend() -> FakeBackend:
    """A backend that can do everything, and is sure of yes, networking and low."""
    return FakeBackend(
        max_steps=8, generation=True, images=True, thought=TOKENIZER.encode(THOUGHT), logprob=SURE
    )


@pytest.fixture
async def client(backend: FakeBackend) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server before it."""
    async with serving(backend, TOKENIZER) as client:
        yield client


def reading_of(answer: dict[str, Any]) -> dict[str, Any]:
    reading: dict[str, Any] = answer["x_decision"]["reading"]
    return reading


# How many draws


@pytest.mark.parametrize("samples", [1, 2, 7])
async def test_samples_is_the_number_of_draws(
    client: httpx.AsyncClient, backend: FakeBackend, samples: int
) -> None:
    answer = await answered(client, system_one(samples=samples))
    assert dict.fromkeys(QUESTIONS, samples) == draws_of(answer)
    assert samples * len(QUESTIONS) == sum(map(len, backend.batches))


@pytest.mark.parametrize(
    ("fields", "draws"),
    [({}, 4), ({"auto_max": 1}, 1), ({"auto_max": 6}, 6), ({"auto_max": 32}, 32), ({"samples": "auto"}, 4)],
)
async def test_auto_max_bounds_the_draws_of_what_is_uncertain(
    client: httpx.AsyncClient, fields: dict[str, Any], draws: int
) -> None:
    answer = await answered(client, system_one({"urgent": URGENT}, auto_threshold=0, **fields))
    assert {"urgent": draws} == draws_of(answer)
    assert (draws > 1) == reading_of(answer)["extended"]


@pytest.mark.parametrize(("threshold", "draws"), [(0.7, 1), (1e6, 1), (0.69, 4)])
async def test_auto_threshold_is_the_entropy_above_which_more_is_drawn(
    client: httpx.AsyncClient, backend: FakeBackend, threshold: float, draws: int
) -> None:
    backend.logprob = lambda *_: -3.0  # an entropy of ln 2, which is 0.693
    answer = await answered(client, system_one({"urgent": URGENT}, auto_threshold=threshold))
    assert {"urgent": draws} == draws_of(answer)


async def test_auto_max_bounds_nothing_where_a_number_of_samples_is_asked_for(
    client: httpx.AsyncClient,
) -> None:
    answer = await answered(client, system_one(samples=3, auto_max=1, auto_threshold=0))
    assert dict.fromkeys(QUESTIONS, 3) == draws_of(answer)


async def test_the_seed_moves_the_noise_and_nothing_else(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    for seed in (0, 7, 0, -(2**70)):
        await answered(client, system_one({"urgent": URGENT}, seed=seed, samples=1))
    requests = [request for batch in backend.batches for request in batch]
    assert 1 == len({(request.prompt.ids, request.positions, request.label_ids) for request in requests})
    assert requests[0].canvas == requests[2].canvas
    assert 3 == len({request.canvas for request in requests})


# How they are read


@pytest.mark.parametrize("steps", [1, 3, 8])
async def test_steps_are_those_of_every_read(
    client: httpx.AsyncClient, backend: FakeBackend, steps: int
) -> None:
    await answered(client, system_one(steps=steps))
    assert {steps} == {request.steps for batch in backend.batches for request in batch}


async def test_think_lets_the_model_think_before_each_read(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    answer = await answered(client, system_one({"urgent": URGENT}, think=5))
    (thought,) = reading_of(answer)["thoughts"]
    assert (["urgent"], THOUGHT[:5]) == (thought["questions"], thought["text"])
    assert [5] == [tokens for _, tokens, _ in backend.generated]
    assert THOUGHT[:5] in prompts(backend)[0]
    assert [] == reading_of(await answered(client, system_one({"urgent": URGENT}, think=0)))["thoughts"]


@pytest.mark.parametrize(("rows", "largest"), [(8, 1), (18, 2), (26, 3), (1000, 7)])
async def test_chunk_rows_reads_together_what_fits(
    client: httpx.AsyncClient, rows: int, largest: int
) -> None:
    """A question takes eight tokens of `{"a":"yes","b":"yes"}`, the braces and the turn close two more."""
    answer = await answered(client, system_one(MANY, chunk_rows=rows))
    groups = reading_of(answer)["groups"]
    assert list(MANY) == [name for group in groups for name in group]
    assert largest == max(map(len, groups))
    assert "none" == reading_of(answer)["isolate"]


async def test_sequential_reads_canvas_after_canvas_with_the_answers_so_far(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    answer = await answered(client, system_one(MANY, chunk_rows=26, sequential=True))
    stages = reading_of(answer)["stages"]
    assert reading_of(answer)["groups"] == stages
    assert 1 < len(stages)
    texts = prompts(backend)
    assert len(stages) == len(texts)
    answers = ['"a":"yes","b":"yes"' in text for text in texts]
    assert [False, *[True] * (len(stages) - 1)] == answers
    assert "none" == reading_of(answer)["isolate"]


async def test_sequential_questions_may_be_read_apart(client: httpx.AsyncClient) -> None:
    answer = await answered(client, system_one(sequential=True, isolate="all"))
    assert [[name] for name in QUESTIONS] == reading_of(answer)["stages"]


@pytest.mark.parametrize("said", ["Only weekdays count.", {"only": "weekdays"}, ["Only", "weekdays"]])
async def test_instructions_of_the_request_stand_before_every_state(
    client: httpx.AsyncClient, backend: FakeBackend, said: Any
) -> None:
    await answered(client, system_one(instructions=said))
    for text in prompts(backend):
        assert text.index("weekdays") < text.index("502 spike") < text.index("Question a")
    assert len(QUESTIONS) == len(prompts(backend))


async def test_ask_asks_only_these(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    answer = await answered(client, system_one(ask=["severity", "urgent", "urgent"]))
    assert ["urgent", "severity"] == list(answer["answers"])
    assert not any("Whose is it?" in text for text in prompts(backend))


# Which questions wait for others


async def test_what_depends_on_others_is_read_after_them_and_sees_their_answers(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    questions = {"severity": SEVERITY | {"depends_on": ["urgent", "team"]}, "urgent": URGENT, "team": TEAM}
    answer = await answered(client, system_one(questions))
    assert [["urgent", "team"], ["severity"]] == reading_of(answer)["stages"]
    *_, last = prompts(backend)
    assert last.endswith('{"a":"yes","b":"networking')


@pytest.mark.parametrize(
    ("other", "wanted", "asked"),
    [
        ("urgent", ["yes"], True),
        ("urgent", ["no"], False),
        ("urgent", [True], True),
        ("urgent", [False], False),
        ("urgent", ["true"], True),
        ("urgent", ["false", "yes"], True),
        ("team", ["networking"], True),
        ("team", ["billing"], False),
        ("severity", ["low"], True),
        ("severity", ["none", "high"], False),
        ("severity", [1], True),
        ("severity", ["1"], True),
        ("severity", [0, 2], False),
    ],
)
async def test_ask_if_asks_where_the_other_question_has_such_an_answer(
    client: httpx.AsyncClient, backend: FakeBackend, other: str, wanted: list[Any], asked: bool
) -> None:
    waiting = {"type": "noul", "instructions": "Call the carrier?", "ask_if": {other: wanted}}
    answer = await answered(client, system_one({**QUESTIONS, "carrier": waiting}))
    assert asked == (answer["answers"]["carrier"] is not None)
    assert asked == any("Call the carrier?" in text for text in prompts(backend))
    assert [*QUESTIONS, "carrier"] == list(answer["answers"])
    assert len(QUESTIONS) + asked == answer["usage"]["output_tokens"]


async def test_what_waits_for_a_question_that_was_skipped_is_skipped_too(client: httpx.AsyncClient) -> None:
    first = {"type": "noul", "instructions": "First?", "ask_if": {"urgent": ["no"]}}
    second = {"type": "noul", "instructions": "Second?", "ask_if": {"first": ["yes"]}}
    answer = await answered(client, system_one({"urgent": URGENT, "first": first, "second": second}))
    assert [None, None] == [answer["answers"][name] for name in ("first", "second")]


async def test_a_levels_text_goes_before_its_index(client: httpx.AsyncClient, backend: FakeBackend) -> None:
    """A level may be called 1 and be the first, whose index is 0."""
    numbered = {"type": "score", "instructions": "How bad?", "criteria": ["1", "2", "3"]}
    backend.logprob = believing("1")
    for wanted, asked in (("1", True), (1, False), (0, True)):
        waiting = URGENT | {"ask_if": {"bad": [wanted]}}
        answer = await answered(client, system_one({"bad": numbered, "urgent": waiting}))
        assert asked == (answer["answers"]["urgent"] is not None)


async def test_who_wants_to_be_alone_is(client: httpx.AsyncClient) -> None:
    questions = QUESTIONS | {"team": TEAM | {"alone": True}}
    answer = await answered(client, system_one(questions, isolate="none"))
    assert [["team"], ["urgent", "severity"]] == reading_of(answer)["groups"]


# What is refused

_WAITS = {"type": "noul", "instructions": "So?"}


@pytest.mark.parametrize(
    ("fields", "location"),
    [
        *(({"samples": each}, ["samples"]) for each in (0, 33, 1.5, True, "many", None)),
        *(({"auto_max": each}, ["auto_max"]) for each in (0, 33, "4", 2.5, None)),
        *(({"auto_threshold": each}, ["auto_threshold"]) for each in (-0.1, "0.1", [0.1])),
        *(({"steps": each}, ["steps"]) for each in (0, 9, "1", True)),
        *(({"think": each}, ["think"]) for each in (-1, 4097, True, "64")),
        ({"ask": []}, ["ask"]),
        ({"ask": "urgent"}, ["ask"]),
        ({"ask": {"urgent": True}}, ["ask"]),
        *(({"ask": each}, ["ask", 1]) for each in (["urgent", "nobody"], ["urgent", 3])),
        *(({"chunk_rows": each}, ["chunk_rows"]) for each in (7, "64", 32.5)),
        ({"sequential": "yes"}, ["sequential"]),
        ({"sequential": 1}, ["sequential"]),
        ({"sequential": None}, ["sequential"]),
        *(({"instructions": each}, ["instructions"]) for each in (3, True)),
        *(({"seed": each}, ["seed"]) for each in (1.5, "7", True, None)),
        *(({"isolate": each}, ["isolate"]) for each in ("some", True)),
        *(({"deadline_ms": each}, ["deadline_ms"]) for each in (0, 600_001, "8000")),
    ],
)
async def test_a_wrong_value_is_told_by_its_place(
    client: httpx.AsyncClient, backend: FakeBackend, fields: dict[str, Any], location: list[Any]
) -> None:
    reply = await client.post(SYSTEM_ONE, json=system_one(**fields))
    assert 422 == reply.status_code, reply.text
    assert ["body", *location] == reply.json()["detail"][0]["loc"]
    assert [] == backend.batches


@pytest.mark.parametrize(
    ("field", "value", "location"),
    [
        ("depends_on", "urgent", ["depends_on"]),
        ("depends_on", ["nobody"], ["depends_on"]),
        ("depends_on", [3], ["depends_on", 0]),
        ("depends_on", ["so"], ["depends_on"]),
        ("ask_if", ["urgent"], ["ask_if"]),
        ("ask_if", {"nobody": ["yes"]}, ["ask_if"]),
        ("ask_if", {"urgent": []}, ["ask_if", "urgent"]),
        ("ask_if", {"urgent": "yes"}, ["ask_if", "urgent"]),
        ("ask_if", {"urgent": ["perhaps"]}, ["ask_if", "urgent"]),
        ("ask_if", {"urgent": [1.5]}, ["ask_if", "urgent", 0]),
        ("ask_if", {"urgent": [1]}, ["ask_if", "urgent"]),
        ("ask_if", {"team": ["yes"]}, ["ask_if", "team"]),
        ("ask_if", {"team": [True]}, ["ask_if", "team"]),
        ("ask_if", {"severity": [3]}, ["ask_if", "severity"]),
        ("ask_if", {"severity": [-1]}, ["ask_if", "severity"]),
        ("ask_if", {"severity": [True]}, ["ask_if", "severity"]),
        ("alone", "yes", ["alone"]),
    ],
)
async def test_a_wrong_condition_is_told_by_its_place(
    client: httpx.AsyncClient, field: str, value: Any, location: list[Any]
) -> None:
    reply = await client.post(SYSTEM_ONE, json=system_one({**QUESTIONS, "so": _WAITS | {field: value}}))
    assert 422 == reply.status_code, reply.text
    assert ["body", "questions", "so", *location] == reply.json()["detail"][0]["loc"]


async def test_questions_that_wait_for_each_other_are_refused(client: httpx.AsyncClient) -> None:
    questions = {"a": _WAITS | {"depends_on": ["b"]}, "b": _WAITS | {"ask_if": {"a": ["yes"]}}}
    reply = await client.post(SYSTEM_ONE, json=system_one(questions))
    assert 422 == reply.status_code
    assert "waits for itself" in reply.json()["detail"][0]["msg"]


@pytest.mark.parametrize("condition", [{"depends_on": ["urgent"]}, {"ask_if": {"urgent": ["yes"]}}])
async def test_asking_without_what_is_waited_for_is_refused(
    client: httpx.AsyncClient, condition: dict[str, Any]
) -> None:
    questions = {**QUESTIONS, "so": _WAITS | condition}
    reply = await client.post(SYSTEM_ONE, json=system_one(questions, ask=["so", "team"]))
    assert (422, ["body", "ask"]) == (reply.status_code, reply.json()["detail"][0]["loc"])
    assert "'urgent', which it waits for" in reply.json()["detail"][0]["msg"]
    answer = await answered(client, system_one(questions, ask=["so", "urgent"]))
    assert ["urgent", "so"] == list(answer["answers"])
    assert ["urgent"] == list((await answered(client, system_one(questions, ask=["urgent"])))["answers"])


@pytest.mark.parametrize(
    ("fields", "told"), [({"steps": 2}, "steps"), ({"think": 8}, "think"), ({"images": ["x"]}, "images")]
)
async def test_what_a_backend_cannot_do_is_refused(fields: dict[str, Any], told: str) -> None:
    async with serving(FakeBackend(), TOKENIZER) as client:
        reply = await client.post(SYSTEM_ONE, json=system_one(**fields))
    assert 422 == reply.status_code
    assert told in reply.text
