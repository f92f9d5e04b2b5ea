"""The plan: which questions share a canvas. Compiled once per question set, then cached by the caller."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from structured_server.core import conditions
from structured_server.core.canvas import Canvas, build_canvas
from structured_server.core.labels import choose_labels
from structured_server.core.prompt import Asked, Layout
from structured_server.core.questions import Question, Schema
from structured_server.core.reads import SlotFill
from structured_server.core.template import Keys, TemplateStyle, choose_keys
from structured_server.core.tokens import Tokenizer
from structured_server.errors import InvalidQuestion, InvalidRequest

MAX_IN_SEQUENCE = 64  # planning looks at all that stands before each canvas, each time
OPEN_CANVASES = 16  # of a bundle's, the latest: the others are taken for full

Isolate = Literal["none", "noul", "all", "auto"]
Scaffold = Literal["prompt", "canvas"]

_ANY_WIDTH = range(1, 1 << 32)

_Entries = Sequence[tuple[str, Question]]
_Condition = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do. `None` means that it sets no limit."""

    widths: tuple[int, ...]  # canvas lengths in tokens, ascending
    max_label_ids: int | None  # ids that one read may ask for, counted over the whole canvas
    max_model_len: int | None  # prompt and canvas together, in tokens
    max_steps: int = 1  # denoise steps of one read
    constrained: bool = False  # can normalise over the label ids alone
    generation: bool = False  # can write text, so that thoughts are possible
    chat: bool = False  # takes chat requests as they are
    continues: bool = True  # prompts may end inside of the model's turn
    images: bool = False  # the model sees images
    separate: bool = False  # reads made at once are requests of their own: one may fail without the others


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How questions are laid out and read; every field moves numbers."""

    layout: Layout = "schema_first"
    template: TemplateStyle = "json"
    keys: Keys = "auto"
    isolate: Isolate = "none"
    scaffold: Scaffold = "prompt"
    slot_fill: SlotFill = "noise"
    rotate: bool = False  # each further draw lists the options in another cyclic order
    steps: int = 1  # denoise steps of one read
    constrained: bool = False  # the engine normalises over the label ids: quicker, no label mass
    think: int = 0  # tokens of a thought before the read; 0 for none
    restate: bool = False  # later stages are told earlier answers instead of going on from them
    rows: int | None = None  # canvas positions that questions which share a canvas may take
    sequential: bool = False  # each group is read after the one before it, and sees its answers


@dataclass(frozen=True)
class Group:
    """Questions that share a canvas, in the order of their slots.

    `given` are those whose answers stand before theirs, by id; `condition` are the answers, as keys, with
    which the group is read at all.
    """

    identifiers: tuple[str, ...]
    asked: tuple[Asked, ...]
    canvas: Canvas
    given: tuple[tuple[str, Asked], ...] = ()
    condition: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @cached_property
    def content(self) -> str:
        """The part of the noise seed that is the questions'."""
        return content_of(each.question for each in self.asked)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every question of a schema in exactly one group. A stage's groups may be read at once."""

    stages: tuple[tuple[Group, ...], ...]
    options: ReadOptions
    isolated: Isolate  # what `isolate` came to: never "auto"
    schema: Schema

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of all stages."""
        return tuple(group for stage in self.stages for group in stage)


@dataclass(frozen=True, slots=True)
class Compiler:
    """What groups are made with."""

    options: ReadOptions
    capabilities: Capabilities
    tokenizer: Tokenizer

    def plan(self, schema: Schema) -> Plan:
        """Put the questions into as few canvases as capacity, the id cap and isolation allow.

        Raises:
            InvalidQuestion: a question fits no canvas even alone, or needs more labels than there are.
            InvalidRequest: too many to read in sequence, or the ids cannot name the questions as asked.
        """
        if not self.options.sequential:
            return self._plan(schema)
        if len(schema) > MAX_IN_SEQUENCE:
            raise InvalidRequest(
                f"may be asked for up to {MAX_IN_SEQUENCE} questions, got {len(schema)}.",
                path=("sequential",),
            )
        plan = self._plan(schema)
        while True:
            plan = self._plan(_in_sequence(plan))
            # Behind answers a group may take a token more, and come apart: then its parts take turns too.
            if all(len(stage) == 1 for stage in plan.stages):
                return replace(plan, schema=schema)

    def _plan(self, schema: Schema) -> Plan:
        isolate = _settled(self.options.isolate, schema)
        questions = dict(schema.questions)
        stages = tuple(
            tuple(
                group
                for bundle in _bundles(names, questions, isolate)
                for group in self._pack(bundle, questions)
            )
            for names in conditions.stages(questions)
        )
        return Plan(stages, self.options, isolate, schema)

    def without(self, group: Group, missing: Set[str]) -> Group:
        """Return a group whose `given` lacks some questions, because they have no answer to go on from."""
        left = [(name, each.question) for name, each in group.given if name not in missing]
        entries = [(name, each.question) for name, each in zip(group.identifiers, group.asked, strict=True)]
        made = self._group(entries, left, group.condition)
        assert made is not None, "a group was tried without what it is given when it was planned"
        return made

    def _pack(self, bundle: _Bundle, questions: Mapping[str, Question]) -> list[Group]:
        """Put each question into the first canvas that has room for it.

        Canvases that look full are passed over, as far as that can be told without trying.
        """
        given = [(name, questions[name]) for name in bundle.given]
        packed: list[Group] = []
        for name in bundle.names:
            alone = self._alone(name, questions[name], given, bundle.condition)
            for index in range(max(0, len(packed) - OPEN_CANVASES), len(packed)):
                if self._may_join(packed[index], alone):
                    entries = [(n, questions[n]) for n in (*packed[index].identifiers, name)]
                    group = self._group_in_reach(entries, given, bundle.condition)
                    if group is not None:
                        packed[index] = group
                        break
            else:
                packed.append(alone)
        return packed

    def _may_join(self, group: Group, alone: Group) -> bool:
        """Tell whether a question may fit into a group, by what both take for themselves.

        Up to its label a question takes as many tokens beside others as it does alone.
        """
        cap = self.capabilities.max_label_ids
        ids, others = group.canvas.label_ids, alone.canvas.label_ids
        apart = any(each.aliased for each in alone.asked)  # letters avoid those that are taken
        together = len(ids) + len(others) if apart else len({*ids, *others})
        if cap is not None and together > cap:
            return False
        opens = self.options.scaffold == "canvas" and not alone.canvas.opening.ids
        head = len(self.tokenizer.scaffold) if opens else 0
        last = group.canvas.slots[-1].position + 1 + alone.canvas.slots[-1].position - head
        return last + 1 < self.capabilities.widths[-1]

    def _alone(self, identifier: str, question: Question, given: _Entries, condition: _Condition) -> Group:
        """Return the group of one question; only there may it have more label ids than a read asks for."""
        entry = (identifier, question)
        group = self._group([entry], given, condition)
        if group is None or (given and self._group([entry], (), condition) is None):
            raise _does_not_fit(entry, given, self)
        return group

    def _group_in_reach(self, entries: _Entries, given: _Entries, condition: _Condition) -> Group | None:
        """Return the group if one read holds it, with what it is given and without."""
        cap, rows = self.capabilities.max_label_ids, self.options.rows
        if rows is not None and self._group(entries, given, condition, range(1, rows + 1)) is None:
            return None
        group = self._group(entries, given, condition)
        if group is None or (cap is not None and len(group.canvas.label_ids) > cap):
            return None
        if given and self._group(entries, (), condition) is None:
            return None
        return group

    def _group(
        self, entries: _Entries, given: _Entries, condition: _Condition, widths: Sequence[int] = ()
    ) -> Group | None:
        """Put the questions into one canvas, or return None where no width holds them."""
        options = self.options
        everything = [*given, *entries]
        asked: list[Asked] = []
        # Letters avoid the labels before them, and words that may become labels behind them.
        taken = {option.word for _, question in everything for option in question.options}
        taken.update(label for _, question in everything for _, label in question.aliases)
        keys = choose_keys([identifier for identifier, _ in everything], options.keys)
        for key, (identifier, question) in zip(keys, everything, strict=True):
            try:
                labels = choose_labels(self.tokenizer, options.template, key, question, taken)
            except InvalidQuestion as error:
                raise located(error, identifier) from None
            taken.update(labels)
            asked.append(Asked(key, question, labels))
        count = len(given)
        first = count if options.restate else 0
        canvas = build_canvas(
            self.tokenizer,
            options.template,
            [(each.key, each.labels) for each in asked[first:]],
            widths or self.capabilities.widths,
            scaffold=options.scaffold == "canvas",
            answered=count - first,
        )
        if canvas is None:
            return None
        return Group(
            tuple(identifier for identifier, _ in entries),
            tuple(asked[count:]),
            canvas,
            tuple((identifier, each) for (identifier, _), each in zip(given, asked, strict=False)),
            condition,
        )


def compile_plan(
    schema: Schema, options: ReadOptions, capabilities: Capabilities, tokenizer: Tokenizer
) -> Plan:
    """Put the questions into as few canvases as possible, as `Compiler.plan` does."""
    return Compiler(options, capabilities, tokenizer).plan(schema)


def content_of(questions: Iterable[Question]) -> str:
    """Return what questions say, without their ids, their limits and what they wait for."""
    return json.dumps(
        [
            [q.kind, q.instructions, [[o.key, o.word, o.description] for o in q.options], q.aliases]
            for q in questions
        ],
        ensure_ascii=False,
    )


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Questions of one stage that may share a canvas: the same answers stand before them."""

    names: tuple[str, ...]
    given: tuple[str, ...]
    condition: _Condition


def _settled(isolate: Isolate, schema: Schema) -> Isolate:
    """Decide `auto`: yes/no questions copy each other where two or three questions share a canvas."""
    if isolate != "auto":
        return isolate
    nouls = sum(question.kind == "noul" for _, question in schema.questions)
    return "noul" if len(schema) in (2, 3) and nouls >= 2 else "none"


def _in_sequence(plan: Plan) -> Schema:
    """Return the plan's questions, those of each group waiting for all groups before it."""
    before: list[str] = []
    questions = dict(plan.schema.questions)
    for group in plan.groups:
        for name in group.identifiers:
            conditions = replace(questions[name].conditions, depends_on=tuple(before))
            questions[name] = replace(questions[name], conditions=conditions)
        before += group.identifiers
    return replace(plan.schema, questions=tuple(questions.items()))


def _bundles(names: Sequence[str], questions: Mapping[str, Question], isolate: Isolate) -> list[_Bundle]:
    """Put a stage's questions into bundles: those read alone first, as they come."""
    alone: list[_Bundle] = []
    together: dict[tuple[tuple[str, ...], _Condition], list[str]] = {}
    for name in names:
        question = questions[name]
        wanted = question.conditions
        given = conditions.given(questions, name)
        if wanted.alone or isolate == "all" or (isolate == "noul" and question.kind == "noul"):
            alone.append(_Bundle((name,), given, wanted.ask_if))
        else:
            together.setdefault((given, wanted.ask_if), []).append(name)
    return [*alone, *(_Bundle(tuple(members), *key) for key, members in together.items())]


def _does_not_fit(entry: tuple[str, Question], given: _Entries, compiler: Compiler) -> InvalidQuestion:
    identifier, _ = entry
    widest = compiler.capabilities.widths[-1]
    for before in ((), given):
        alone = compiler._group([entry], before, (), _ANY_WIDTH)
        if alone is not None and alone.canvas.width > widest:
            return InvalidQuestion(
                f"takes {alone.canvas.width} canvas tokens even alone; the widest canvas has {widest}.",
                path=("questions", identifier),
                hint="Shorten the id, or set read.keys to neutral.",
            )
    return InvalidQuestion(
        "cannot stand behind the answers that it depends on: its labels are no single tokens there.",
        path=("questions", identifier, "depends_on"),
        hint="Set read.template to lines.",
    )


def located(error: InvalidQuestion, identifier: str) -> InvalidQuestion:
    """Return the error with its path counted from the request instead of from the question."""
    return InvalidQuestion(error.predicate, path=("questions", identifier, *error.path), hint=error.hint)
