"""Lint: what is warned of and what is not, and that what moves numbers is told, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.core.changes import Change, find_changes
from structured_server.core.conditions import Conditions
from structured_server.core.lint import Report, lint
from structured_server.core.lint_facts import Facts
from structured_server.core.plan import Capabilities, Compiler, ReadOptions
from structured_server.core.policy import ByType, ReadPolicy
from structured_server.core.prompt import Answered
from structured_server.core.questions import Choice, Limits, Noul, Question, Schema, Score
from structured_server.core.stage import OpenGroup
from structured_server.core.wording import leading_word, opposite
from structured_server.errors import InvalidQuestion, InvalidRequest
from structured_server.jobs import Frame, JobMaker, Matter
from structured_server.linting import facts_of
from tests.core.strategies import plain_ids, questions, quick, schemas
from tests.core.synthetic import CAPABILITIES, schema
from tests.toy import LABELS, ToyTokenizer

TOY = ToyTokenizer([*LABELS, *"ABCDEFGHIJKLMNOP"])
YES_NO = Noul("Is it?")
TEAM = Choice("Whose is it?", (("compute", None), ("networking", "routes"), ("billing", None)))
WIDE = replace(CAPABILITIES, widths=(64, 128, 256), max_model_len=4096)


def frame_of(asked: Schema, options: ReadOptions, capabilities: Capabilities = WIDE) -> Frame:
    """Measure a question set with the toy tokenizer."""
    return Frame.around(Compiler(options, capabilities, TOY).plan(asked), capabilities, TOY)


def measured(
    asked: Schema,
    capabilities: Capabilities = WIDE,
    policy: ReadPolicy = ReadPolicy(),  # noqa: B008  frozen
    *,
    state: str | None = None,
    longest: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Facts:
    """Return the facts about a question set."""
    return facts_of(
        frame_of(asked, ReadOptions(**options), capabilities),
        policy,
        seed=seed,
        state=state,
        longest_state_tokens=longest,
    )


def linted(asked: Schema, *arguments: Any, **more: Any) -> Report:
    """Lint a question set."""
    return lint(measured(asked, *arguments, **more), TOY)


def codes(asked: Schema, *arguments: Any, **more: Any) -> list[tuple[str, str | None]]:
    """Return the warnings' codes and questions."""
    return [(each.code, each.question) for each in linted(asked, *arguments, **more).warnings]


def test_the_canvas_reads_as_text_with_its_slots_marked() -> None:
    (group,) = linted(schema(it=YES_NO, team=TEAM)).groups
    assert '{"it":"⟦it⟧","team":"⟦team⟧"}<close>' == group.text
    assert (64, 64 - 22, None) == (group.width, group.padding, group.opening)
    assert [4, 6] == [each.label_ids for each in group.questions]
    assert (10, 1) == (group.label_ids, group.reads_per_draw)


def test_an_opening_shows_the_earlier_questions() -> None:
    asked = schema(it=YES_NO, team=replace(TEAM, conditions=Conditions(depends_on=("it",))))
    first, second = linted(asked).groups
    assert (0, None) == (first.stage, first.opening)
    assert (1, '{"it":"⟦it⟧', '","team":"⟦team⟧"}<close>') == (second.stage, second.opening, second.text)


def test_prompt_tokens_are_those_that_are_sent() -> None:
    asked = schema(it=YES_NO, team=TEAM)
    frame = frame_of(asked, ReadOptions(isolate="all"))
    for state in ("", "disk full"):
        maker = JobMaker(frame, Matter(state))
        sent = [
            len(maker.job(OpenGroup(group, ()), ReadPolicy()).request(0).prompt.ids)
            for group in frame.plan.groups
        ]
        report = lint(facts_of(frame, ReadPolicy(samples=2), state=state), TOY)
        assert sent == [group.prompt_tokens for group in report.groups]
        assert (2, 8, 4) == (report.cost.one_draw, report.cost.auto_at_most, report.cost.as_asked)
        assert (sum(sent), 2 * sum(sent)) == (
            report.cost.prompt_tokens_of_a_draw,
            report.cost.prompt_tokens_as_asked,
        )


def test_a_mask_makes_all_draws_one() -> None:
    facts = measured(schema(it=YES_NO), policy=ReadPolicy(samples=5), slot_fill="mask")
    cost = lint(facts, TOY).cost
    assert (1, 1, 1) == (cost.one_draw, cost.auto_at_most, cost.as_asked)


def test_a_sound_question_set_has_no_warnings() -> None:
    assert [] == codes(schema(it=YES_NO, team=TEAM, bad=Score("How bad?", ("none", "low", "high"))))


def test_options_that_begin_alike_are_named() -> None:
    regions = Choice(None, (("compute-a", None), ("compute-b", None), ("other", None)))
    (found,) = linted(schema(where=regions)).warnings
    assert ("options_share_first_token", "where") == (found.code, found.question)
    assert "2 of its options" in found.message
    assert "compute-a and compute-b" in found.message


def test_an_option_that_is_one_token_with_what_stands_around_it_begins_like_no_other() -> None:
    """Its text in the answer ends where the others' labels begin."""
    merging = ToyTokenizer([*"ABC", '"top side"}'])
    regions = Choice(None, (("top side", None), ("left side", None), ("left half", None)))
    plan = Compiler(ReadOptions(), WIDE, merging).plan(schema(where=regions))
    frame = Frame.around(plan, WIDE, merging)
    facts = facts_of(frame, ReadPolicy(), seed=0, state=None, longest_state_tokens=None)
    (found,) = lint(facts, merging).warnings
    assert "2 of its options" in found.message
    assert "left side and left half" in found.message


def test_options_that_begin_alike_do_no_harm_under_the_callers_labels() -> None:
    pairs = (("compute-a", "low"), ("compute-b", "high"))
    regions = Choice(None, (("compute-a", None), ("compute-b", None)), aliases=pairs)
    assert [] == codes(schema(where=regions))


def test_letters_for_options_that_begin_differently_are_no_warning() -> None:
    assert [] == codes(schema(where=Choice(None, (("left side", None), ("top side", None)))))


def test_yes_no_questions_in_one_canvas_are_warned_of_until_they_are_apart() -> None:
    asked = schema(first=Noul("Is it late?"), second=Noul("Is it dear?"))
    assert [("nouls_share_canvas", None)] == codes(asked)
    for isolate in ("noul", "all", "auto"):
        assert [] == codes(asked, isolate=isolate)


def test_opposite_questions_in_one_canvas_are_named() -> None:
    asked = schema(first=Noul("Is it down?"), second=Noul("Is it not down?"))
    assert [("opposite_nouls", "second"), ("nouls_share_canvas", None)] == codes(asked)
    assert [] == codes(asked, isolate="noul")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Should we wake an engineer?", "Should we not wake an engineer?"),
        ("Does it need action?", "Doesn't it need action?"),
        ("Can this wait?", "This cannot wait."),
        ("Will it heal?", "It won't heal"),
        ("Are there any errors?", "Are there no errors?"),
        ("Is anybody affected?", "Is nobody affected?"),
        ("Is the host reachable?", "Is the host unreachable?"),
        ("Is the request legal?", "Is the request illegal?"),
        ("Is the change safe?", "Is the change unsafe?"),
        ("Did the check pass?", "Did the check fail?"),
        ("Is it urgent?", "Is it non-urgent?"),
    ],
)
def test_opposites_are_found(first: str, second: str) -> None:
    assert opposite(Noul(first), Noul(second))
    assert opposite(Noul(second), Noul(first))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Is it urgent?", "Is it urgent?"),
        ("Is it urgent?", "Is it costly?"),
        ("Is it not safe?", "Is it unsafe?"),
        ("Is the site down?", "Is the shop down?"),
        ("Did we import data?", "Did we port data?"),
        ("Is it urgent?", "Should nobody be told that it is late?"),
        ("not", "no"),
        ("", "not"),
    ],
)
def test_what_is_no_opposite_is_not_called_one(first: str, second: str) -> None:
    assert not opposite(Noul(first, true="x"), Noul(second, true="y"))


def test_criteria_the_other_way_round_are_opposite() -> None:
    assert opposite(Noul("Which?", "it burns", "it is wet"), Noul("And?", "it is wet", "it burns"))
    assert opposite(Noul(true="customers are hurt"), Noul(true="customers are not hurt"))


def test_neighbours_with_the_same_words_are_warned_of() -> None:
    levels = ("none", "low", "high")
    asked = schema(cost=Score("How dear?", levels), risk=Score("How bad?", levels))
    (found,) = linted(asked).warnings
    assert ("shared_labels", "risk") == (found.code, found.question)
    assert "none, low and high" in found.message
    assert "cost" in found.message
    assert [] == codes(asked, isolate="all")


@pytest.mark.parametrize(
    ("identifier", "question", "word"),
    [
        ("security_team", Choice(None, (("security", None), ("billing", None))), "security"),
        ("isHighRisk", Score("How?", ("low", "High")), "High"),
        ("not_urgent", YES_NO, "not"),
        ("x__mirror_rev", YES_NO, "mirror"),
        ("say_yes", YES_NO, "yes"),
        ("top side", Choice(None, (("the top", None), ("top-side", None))), "top-side"),
        ("urgent", YES_NO, None),
        ("notice", YES_NO, None),
        ("team", Choice(None, (("tea", None), ("milk", None))), None),
        ("top", Choice(None, (("top side", None), ("low side", None))), None),
        ("", YES_NO, None),
    ],
)
def test_words_of_an_id_that_suggest_an_answer(identifier: str, question: Question, word: str | None) -> None:
    assert word == leading_word(identifier, question)


def test_only_ids_that_the_model_sees_lead_it() -> None:
    asked = schema(not_down=YES_NO)
    assert [("leading_id", "not_down")] == codes(asked)
    assert [] == codes(asked, keys="neutral")


def test_a_wide_choice_says_how_many_reads_a_draw_takes() -> None:
    words = tuple((f"option {index}", None) for index in range(12))
    few = replace(WIDE, max_label_ids=6)
    report = linted(schema(which=Choice(None, words)), few)
    wide = next(each for each in report.warnings if each.code == "wide_choice")
    assert "which" == wide.question
    assert f"{report.cost.one_draw} reads" in wide.message
    assert report.cost.one_draw > 1


def test_reads_beyond_the_limit_are_foreseen() -> None:
    asked = schema(it=YES_NO, team=TEAM)
    apart: dict[str, Any] = {"isolate": "all"}
    assert [] == codes(asked, policy=ReadPolicy(max_reads=8), **apart)
    partly = linted(asked, policy=ReadPolicy(max_reads=5), **apart)
    assert ["reads_exceed_max"] == [each.code for each in partly.warnings]
    assert 5 == partly.cost.auto_at_most
    assert "team" in partly.warnings[0].message
    refused = linted(asked, policy=ReadPolicy(samples=4, max_reads=7), **apart)
    assert ["reads_exceed_max"] == [each.code for each in refused.warnings]
    assert "refused" in refused.warnings[0].message
    assert 8 == refused.cost.as_asked


def test_states_are_held_against_their_room() -> None:
    facts = measured(schema(it=YES_NO), state="x" * 9, longest=10)
    room = facts.room
    assert room is not None
    assert 9 == facts.state_tokens
    assert [] == codes(schema(it=YES_NO), longest=room)
    long = ("state_too_long_for_engine", None)
    assert [long] == codes(schema(it=YES_NO), longest=room + 1)
    assert [long, long] == codes(schema(it=YES_NO), state="x" * (room + 1), longest=room + 2)
    unknown = replace(WIDE, max_model_len=None)
    assert [] == codes(schema(it=YES_NO), unknown, longest=10**6)


def moved(old: Facts, new: Facts) -> set[str]:
    """Return the questions of both, by id, whose bytes are not the same."""
    before, now = sent(old), sent(new)
    return {name for name in before.keys() & now.keys() if before[name] != now[name]}


def sent(facts: Facts) -> dict[str, object]:
    """Return for each question all that its reads and the folding of them depend on."""
    maker = JobMaker(
        Frame(facts.plan, facts.capabilities, TOY, facts.chunks, facts.lengths), Matter("s", (), facts.seed)
    )
    found: dict[str, object] = {}
    for group in facts.plan.groups:
        opened = OpenGroup(group, tuple(Answered(asked, 0) for _, asked in group.given))
        job = maker.job(opened, facts.policy)
        for index, name in enumerate(group.identifiers):
            found[name] = (index, job.request(0), job.options(0))
    return found


def told(changes: Sequence[Change]) -> set[str]:
    """Return the questions of which it is said that their numbers move."""
    return {name for change in changes for name in change.moves}


def compared(old: Schema, new: Schema, **options: Any) -> list[tuple[str, str | None, tuple[str, ...]]]:
    """Return what changed from one question set to another that is read alike."""
    changes = find_changes(measured(old, **options), measured(new, **options))
    return [(each.code, each.question, each.moves) for each in changes]


@quick
@given(st.data(), schemas(most=4, ids=plain_ids), st.sampled_from(["none", "noul", "all", "auto"]))
def test_told_are_just_the_questions_whose_bytes_move(
    data: st.DataObject, before: Schema, isolate: Any
) -> None:
    entries = list(before.questions)
    data.draw(st.randoms(use_true_random=False)).shuffle(entries)
    index = data.draw(st.integers(0, len(entries) - 1))
    change = data.draw(st.sampled_from(["none", "replace", "drop", "add"]))
    if change == "replace":
        entries[index] = (entries[index][0], data.draw(questions))
    elif change == "drop" and len(entries) > 1:
        del entries[index]
    elif change == "add":
        entries.insert(index, ("added_one", data.draw(questions)))
    keys = data.draw(st.sampled_from(["auto", "neutral"]))
    try:
        old = measured(before, isolate=isolate, keys=keys)
        new = measured(Schema(tuple(entries)), isolate=isolate, keys=keys)
    except (InvalidQuestion, InvalidRequest):
        return
    changes = find_changes(old, new)
    namesakes = {name for name, _ in before.questions}
    assert moved(old, new) == told(changes) & namesakes
    assert "prompt" not in {each.code for each in changes}


@quick
@given(schemas(ids=plain_ids), st.floats(0, 1))
def test_thresholds_and_limits_move_nothing(before: Schema, value: float) -> None:
    def judged(question: Question) -> Question:
        question = replace(question, limits=Limits(min_top_probability=value))
        return replace(question, threshold=value) if isinstance(question, Noul) else question

    after = Schema(tuple((name, judged(question)) for name, question in before.questions))
    try:
        assert [] == compared(before, after)
    except InvalidQuestion:
        return


def test_a_threshold_moves_those_that_go_on_from_the_answer() -> None:
    later = replace(TEAM, conditions=Conditions(depends_on=("it",)))
    before, after = schema(it=YES_NO, team=later), schema(it=replace(YES_NO, threshold=0.9), team=later)
    assert [("earlier_answer", "it", ("team",))] == compared(before, after)


def test_ids_count_only_where_they_are_shown() -> None:
    before, after = schema(it=YES_NO, team=TEAM), schema(thing=YES_NO, team=TEAM)
    assert [] == compared(before, after, keys="neutral")
    assert [("id", "thing", ("thing", "team"))] == compared(before, after)


def test_questions_that_are_read_apart_leave_each_other_alone() -> None:
    before, after = schema(it=YES_NO, team=TEAM), schema(team=TEAM, bad=Score("How?", ("low", "high")))
    expected = [("question_added", "bad", ()), ("question_removed", "it", ())]
    assert expected == compared(before, after, isolate="all")
    assert ("groups", "team", ("team",)) in compared(before, after)


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (replace(TEAM, instructions="Who?"), "instructions"),
        (replace(TEAM, criteria=(("compute", None), ("networking", None), ("billing", None))), "criteria"),
        (
            replace(TEAM, criteria=(("networking", "routes"), ("compute", None), ("billing", None))),
            "option_order",
        ),
        (replace(TEAM, criteria=(*TEAM.criteria, ("storage", None))), "options"),
        (replace(TEAM, criteria=((" compute", None), *TEAM.criteria[1:])), "options"),
        (replace(TEAM, aliases=(("billing", "B"),)), "aliases"),
        (Noul("Whose is it?"), "type"),
    ],
)
def test_what_differs_in_a_question_is_named_with_all_that_it_moves(question: Question, code: str) -> None:
    found = compared(schema(it=YES_NO, team=TEAM), schema(it=YES_NO, team=question))
    assert (code, "team", ("it", "team")) == found[0]


def test_criteria_and_instructions_are_not_quoted() -> None:
    before = schema(team=Choice("SECRET", (("compute", "SECRET"), ("billing", None))))
    after = schema(team=Choice("HIDDEN", (("compute", "HIDDEN"), ("billing", None))))
    changes = find_changes(measured(before), measured(after))
    assert ["instructions", "criteria"] == [each.code for each in changes]
    for each in changes:
        assert "SECRET" not in each.message
        assert "HIDDEN" not in each.message


def test_the_order_of_questions_moves_a_canvas() -> None:
    found = compared(schema(it=YES_NO, team=TEAM), schema(team=TEAM, it=YES_NO))
    assert [("order", "team", ("team", "it"))] == found
    assert [] == compared(schema(it=YES_NO, team=TEAM), schema(team=TEAM, it=YES_NO), isolate="all")


def test_a_wider_canvas_is_named() -> None:
    found = compared(schema(it=YES_NO), schema(**{"it": YES_NO, "long" * 6: YES_NO, "more" * 6: YES_NO}))
    assert ("canvas_width", "it", ("it",)) in found


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"layout": "document_first"}, "read.layout"),
        ({"template": "lines"}, "read.template"),
        ({"keys": "neutral"}, "read.keys"),
        ({"isolate": "all"}, "read.isolate"),
        ({"rotate": True}, "read.rotate"),
        ({"steps": 2}, "read.steps"),
        ({"seed": 1}, "read.seed"),
        ({"policy": ReadPolicy(samples=2)}, "read.samples"),
        ({"policy": ReadPolicy(entropy_thresholds=ByType.same(0.5))}, "read.entropy_threshold"),
        ({"policy": ReadPolicy(temperatures=ByType.same(2))}, "read.temperature"),
        ({"policy": ReadPolicy(max_reads=2)}, "read.max_reads"),
    ],
)
def test_read_options_that_differ_are_named(options: dict[str, Any], code: str) -> None:
    asked = schema(it=YES_NO, team=TEAM)
    changes = find_changes(measured(asked), measured(asked, **options))
    assert code in {each.code for each in changes}
    assert {"it", "team"} == told(changes)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"policy": ReadPolicy(max_reads=64)}),
        ({}, {"isolate": "auto"}),
        ({}, {"keys": "named"}),
        ({"policy": ReadPolicy(samples=1)}, {"policy": ReadPolicy(samples=1), "rotate": True}),
        (
            {"policy": ReadPolicy(samples=2)},
            {"policy": ReadPolicy(samples=2, entropy_thresholds=ByType.same(1))},
        ),
        ({}, {"policy": ReadPolicy(temperatures=ByType(1, 1, 2))}),
        ({"slot_fill": "mask"}, {"slot_fill": "mask", "seed": 3, "policy": ReadPolicy(samples=2)}),
    ],
)
def test_read_options_without_effect_are_not_named(before: dict[str, Any], after: dict[str, Any]) -> None:
    asked = schema(it=YES_NO, team=TEAM)
    assert () == find_changes(measured(asked, **before), measured(asked, **after))


def test_the_order_of_levels_is_never_rotated() -> None:
    asked = schema(bad=Score("How bad?", ("low", "high")))
    assert [] == [each.code for each in find_changes(measured(asked), measured(asked, rotate=True))]


def test_isolation_without_company_moves_nothing() -> None:
    asked = schema(it=YES_NO)
    assert () == find_changes(measured(asked), measured(asked, isolate="all"))


def test_long_states_are_another_matter() -> None:
    asked = schema(it=YES_NO)
    (found,) = find_changes(measured(asked), replace(measured(asked), long_state="head"))
    assert ("read.long_state", ("it",)) == (found.code, found.moves)


def test_what_stands_before_a_question_is_named() -> None:
    later = replace(TEAM, conditions=Conditions(depends_on=("it",)))
    found = compared(schema(it=YES_NO, team=TEAM), schema(it=YES_NO, team=later))
    assert ("depends_on", "team", ("team",)) in found
    assert ("depends_on", "team", ("team",)) in compared(
        schema(it=YES_NO, team=later), schema(it=YES_NO, team=TEAM)
    )


def test_a_difference_without_a_name_is_told_all_the_same() -> None:
    asked = schema(it=YES_NO)
    other = ToyTokenizer(LABELS[::-1])
    frame = Frame.around(Compiler(ReadOptions(), WIDE, other).plan(asked), WIDE, other)
    found = find_changes(measured(asked), facts_of(frame, ReadPolicy()))
    assert [("prompt", "it", ("it",))] == [(each.code, each.question, each.moves) for each in found]
