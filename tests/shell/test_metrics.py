"""Metrics: names with our prefix, numbers that can be trusted, and no label that a caller chooses."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from structured_server.admission import Admission, Weight
from structured_server.core.conditions import Conditions
from structured_server.core.questions import Choice, Limits, Noul, Schema, Score
from structured_server.errors import UpstreamFailed
from structured_server.metrics import Metrics
from tests.fake_backend import FakeBackend
from tests.shell.deciding import Deciding, answers_of, query, sure, unsure
from tests.shell.simulated_time import simulated
from tests.toy import ToyTokenizer

PREFIX = "structured_server_"


def samples(metrics: Metrics) -> dict[str, float]:
    """Scrape, and return every sample by name and labels."""
    return {
        " ".join(
            [sample.name.removeprefix(PREFIX), *(f"{k}={v}" for k, v in sorted(sample.labels.items()))]
        ): (sample.value)
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_every_metric_has_the_prefix_and_says_what_it_is() -> None:
    families = list(text_string_to_metric_families(Metrics().render().decode()))
    assert 15 < len(families)
    assert [] == [family.name for family in families if not family.name.startswith(PREFIX)]
    assert [] == [family.name for family in families if not family.documentation.endswith(".")]
    assert Metrics.content_type.startswith("text/plain; version=")


def test_two_servers_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.engine_losses.inc()
    assert (1, 0) == (samples(one)["engine_losses_total"], samples(other)["engine_losses_total"])


def test_there_are_no_creation_times_among_the_samples() -> None:
    metrics = Metrics()
    metrics.engine_losses.inc()
    assert [] == [name for name in samples(metrics) if "_created" in name]


@simulated
async def test_permits_and_the_queue_are_read_when_they_are_scraped() -> None:
    admission, metrics = Admission(Weight(128, 2), max_waiting=4), Metrics()
    metrics.watch_admission(admission)

    async def hold() -> None:
        async with admission.permit(Weight(64, 1)):
            await asyncio.sleep(1)

    def now() -> tuple[float, ...]:
        said = samples(metrics)
        return tuple(
            said[name]
            for name in ("permits_in_use unit=positions", "permits_in_use unit=reads", "waiting_batches")
        )

    assert (128, 2) == tuple(samples(metrics)[f"permits unit={unit}"] for unit in ("positions", "reads"))
    assert (0, 0, 0) == now()
    tasks = [asyncio.create_task(hold()) for _ in range(3)]
    await asyncio.sleep(0.5)
    assert (128, 2, 1) == now()
    await asyncio.gather(*tasks)
    assert (0, 0, 0) == now()


@simulated
async def test_a_decision_is_counted_with_each_of_its_answers() -> None:
    limits = Limits(min_top_probability=0.9)
    schema = Schema(
        (
            ("a", Noul("So?")),
            ("b", Noul("So?", limits=limits)),
            ("c", Choice("Which?", (("networking", None), ("compute", None)), limits=limits)),
            ("d", Score("How?", ("low", "high"))),
        )
    )
    deciding = Deciding(FakeBackend(logprob=unsure))
    await deciding.driver.decide(query(schema=schema, samples=1))
    said = samples(deciding.metrics)
    assert 1 == said["decisions_total extended=false"]
    assert {
        "answers_total status=decided type=noul": 1,
        "answers_total status=abstained type=noul": 1,
        "answers_total status=abstained type=choice": 1,
        "answers_total status=decided type=score": 1,
    } == {name: value for name, value in said.items() if name.startswith("answers_total")}
    assert 2 == said["normalized_entropy_count type=noul"]
    assert 2 == said["normalized_entropy_sum type=noul"]
    assert 4 == sum(value for name, value in said.items() if name.startswith("label_mass_count"))
    assert (2, 2) == (said["first_entropy_nats_count type=noul"], said["top_probability_count type=noul"])
    assert [] == [name for name in said if name.startswith("question_")]
    assert 0 == said["skipped_extra_reads_total"]


@simulated
async def test_extended_decisions_and_skipped_reads_are_told_apart() -> None:
    deciding = Deciding(FakeBackend(logprob=unsure))
    await deciding.driver.decide(query())
    deciding.backend.failures = {3: UpstreamFailed("it broke.")}
    await deciding.driver.decide(query())
    deciding.backend.logprob = sure
    await deciding.driver.decide(query())
    said = samples(deciding.metrics)
    assert (1, 2) == (said["decisions_total extended=true"], said["decisions_total extended=false"])
    assert 1 == said["skipped_extra_reads_total"]
    assert 1 == said["upstream_errors_total kind=failed"]
    assert (3, 3) == (said["reads_total kind=first"], said["reads_total kind=extra"])


@simulated
async def test_a_label_mass_that_the_engine_hides_is_not_counted_as_none() -> None:
    deciding = Deciding(FakeBackend(logprob=sure))
    outcome = await deciding.driver.decide(query())
    decision, answer = outcome.decision, answers_of(outcome)["urgent"]
    hidden = replace(answer, distribution=replace(answer.distribution, label_mass=None))
    metrics = Metrics()
    metrics.observe(replace(decision, answers={"urgent": hidden}))
    assert (1, 0) == tuple(
        samples(metrics)[name]
        for name in ("answers_total status=decided type=noul", "label_mass_count type=noul")
    )


@simulated
async def test_a_skipped_question_is_counted_as_such_and_has_no_numbers() -> None:
    follow_up = Noul("And then?", conditions=Conditions(ask_if=(("a", ("false",)),)))
    deciding = Deciding(FakeBackend(logprob=sure))
    await deciding.driver.decide(query(schema=Schema((("a", Noul("So?")), ("b", follow_up)))))
    said = samples(deciding.metrics)
    assert {
        "answers_total status=decided type=noul": 1,
        "answers_total status=skipped type=noul": 1,
    } == {name: value for name, value in said.items() if name.startswith("answers_total")}
    assert (1, 1) == (said["normalized_entropy_count type=noul"], said["label_mass_count type=noul"])


@simulated
async def test_named_questions_have_metrics_of_their_own_and_no_others_do() -> None:
    choice = Choice("Which?", (("networking", None), ("compute", None)))
    schema = Schema((("a", choice), ("b", choice)))
    deciding = Deciding(FakeBackend(logprob=sure), metrics=Metrics(["a"]))
    await deciding.driver.decide(query(schema=schema, samples=1))
    said = samples(deciding.metrics)
    assert 1 == said["question_top_probability_count question=a"]
    assert 1 == said["question_answers_total answer=networking question=a"]
    assert [] == [name for name in said if "question=b" in name]


@simulated
async def test_a_named_question_has_no_more_than_so_many_answers() -> None:
    deciding = Deciding(FakeBackend(logprob=sure), metrics=Metrics(["a"]))
    for number in range(40):
        choice = Choice("Which?", ((f"x{number}", None), (f"y{number}", None)))
        await deciding.driver.decide(query(schema=Schema((("a", choice),)), samples=1))
    said = samples(deciding.metrics)
    counted = {name: value for name, value in said.items() if name.startswith("question_answers_total")}
    assert 33 == len(counted)
    assert 8 == counted["question_answers_total answer=other question=a"]


def test_it_says_what_runs_and_at_which_step_of_getting_ready_it_is() -> None:
    metrics = Metrics()
    metrics.runs("1.2", "m1", "vllm")
    for step in ("engine", "warm_up", "ready", "engine"):
        metrics.stands_at(step)
    said = samples(metrics)
    (build,) = [name for name in said if name.startswith("build_info")]
    assert "backend=vllm method=m1" in build
    assert {"readiness_step step=engine": 1} == {
        name: value for name, value in said.items() if name.startswith("readiness_step")
    }
    assert 0 < said["warm_up_seconds"] < 5


@simulated
async def test_the_parts_of_a_decisions_time_are_told_apart() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1))
    await deciding.driver.decide(query(samples=1))
    said = samples(deciding.metrics)
    assert (2, 1) == (said["tokenise_seconds_count"], said["fold_seconds_count"])
    assert (1, 1) == (said["batch_seconds_sum kind=first"], said["queue_seconds_count"])


@simulated
async def test_a_decision_that_shared_its_reads_is_counted_apart_and_only_once() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, delay_s=1))
    await asyncio.gather(*(deciding.driver.decide(query()) for _ in range(3)))
    said = samples(deciding.metrics)
    assert (1, 2) == (said["decisions_total extended=false"], said["shared_decisions_total"])
    assert (2, 1) == (said["answers_total status=decided type=noul"], said["reads_total kind=first"])


@simulated
async def test_thoughts_are_counted_and_those_that_failed_as_failures() -> None:
    deciding = Deciding(FakeBackend(logprob=sure, generation=True), tokenizer=ToyTokenizer(scaffold=True))
    await deciding.driver.decide(query(think=5, isolate="all"))
    deciding.backend.generation_failure = UpstreamFailed("it broke.")
    with pytest.raises(UpstreamFailed):
        await deciding.driver.decide(query(think=5))
    said = samples(deciding.metrics)
    assert (3, 3) == (said["thoughts_total"], said["upstream_errors_total kind=failed"])
    assert 2 == said["retries_total"]
    assert deciding.idle


@simulated
async def test_nothing_that_a_caller_wrote_is_in_the_metrics() -> None:
    secrets = ("zebra", "quagga")
    schema = Schema(((secrets[0], Noul(f"Is it a {secrets[1]}?", true=secrets[0])),))
    deciding = Deciding(FakeBackend(logprob=unsure))
    await deciding.driver.decide(query(schema=schema, state=f"no {secrets[0]}, no {secrets[1]}"))
    text = deciding.metrics.render().decode()
    assert [] == [secret for secret in secrets if secret in text]
