"""From a group to a job: the prompts as ids, within the engine's context, and the seed of the noise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from structured_server.core.plan import Capabilities, Group, Plan, ReadOptions, content_of
from structured_server.core.policy import MAX_READS, ReadPolicy
from structured_server.core.prompt import Answered, Asked, build_prompt
from structured_server.core.reading import Arrangement, GroupJob
from structured_server.core.reads import Image, Prompt, Thought, derive_seed, label_chunks
from structured_server.core.stage import OpenGroup
from structured_server.core.state import LongState, cut_state
from structured_server.core.tokens import ChatFormat, Segment, Tokenizer
from structured_server.errors import InvalidRequest, StateTooLong

SLACK = 8
"""Tokens that a prompt may gain when its options are listed in another order, or answers are told."""

FIRST_LOOK = 65_536
"""Characters of a state whose beginning alone is looked at first: it may be too long already."""

SEAM = 64
"""Tokens that cutting a text in two may add."""


@dataclass(frozen=True, slots=True)
class Matter:
    """What the questions of a decision are about. `seed` is the caller's."""

    state: str
    images: tuple[Image, ...] = ()
    seed: int = 0
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is known of a plan's prompts before any state: made once for each plan.

    `overheads` are the tokens around a state, group by group: prompt, thought, earlier answers, canvas.
    """

    plan: Plan
    capabilities: Capabilities
    tokenizer: Tokenizer
    chunks: tuple[tuple[tuple[int, ...], ...], ...]  # each group's label ids, cut for its reads
    overheads: tuple[int, ...]

    @classmethod
    def around(cls, plan: Plan, capabilities: Capabilities, tokenizer: Tokenizer) -> Frame:
        """Measure a plan.

        Raises:
            InvalidRequest: some group's prompt leaves no room for a state, or the read options cannot be
                had for questions with so many label ids.
        """
        cap = capabilities.max_label_ids
        chunks = tuple(label_chunks(group.canvas.label_ids, cap) for group in plan.groups)
        _refuse_options_for_wide_choices(plan, chunks)
        frame = cls(plan, capabilities, tokenizer, chunks, ())
        empty = JobMaker(frame, Matter(""))
        frame = replace(frame, overheads=tuple(map(empty.length, plan.groups)))
        if frame.room is not None and frame.room <= 0:
            raise InvalidRequest(
                f"take {max(frame.overheads)} tokens of prompt and canvas; the engine's context of "
                f"{capabilities.max_model_len} leaves no room for a state.",
                path=("questions",),
            )
        return frame

    @property
    def room(self) -> int | None:
        """How many tokens a state may have. None where the engine does not say."""
        length = self.capabilities.max_model_len
        return None if length is None else length - max(self.overheads)

    @property
    def longest(self) -> int:
        """The index of the group that leaves the least room."""
        return max(range(len(self.overheads)), key=self.overheads.__getitem__)

    @property
    def reads_of_a_draw(self) -> int:
        """How many reads one draw of every group takes."""
        return sum(map(len, self.chunks))


class JobMaker:
    """Makes the jobs of one decision. What it tokenises it tokenises once."""

    def __init__(self, frame: Frame, matter: Matter) -> None:
        self._frame = frame
        self._matter = matter
        self._options = frame.plan.options
        self._tokenizer = frame.tokenizer
        self._encoded: dict[tuple[Segment, ...], tuple[int, ...]] = {}
        self._arranged: dict[Hashable, tuple[Group, Arrangement]] = {}
        self._state_tokens: int | None = None

    @property
    def thought_tokens(self) -> int:
        """The longest thought that is asked for."""
        return self._options.think

    def state_tokens(self) -> int:
        """Return how many tokens the state adds to a prompt."""
        if self._state_tokens is None:
            plan, longest, overheads = self._frame.plan, self._frame.longest, self._frame.overheads
            self._state_tokens = max(0, self.length(plan.groups[longest]) - overheads[longest])
        return self._state_tokens

    def cut(self, long_state: LongState) -> JobMaker:
        """Return a maker for as much of the state as there is room for.

        Raises:
            StateTooLong: it does not fit, and must not be cut.
        """
        frame, matter = self._frame, self._matter
        if long_state == "reject" and self._begins_too_long():
            raise self._too_long("far more tokens than fit", frame.room)
        tokens = self.state_tokens()
        if frame.room is None or tokens <= frame.room:
            return self
        if long_state == "reject":
            raise self._too_long(f"{tokens} tokens", frame.room)

        def count(state: str) -> int:
            return JobMaker(frame, replace(matter, state=state)).state_tokens()

        return JobMaker(frame, replace(matter, state=cut_state(matter.state, long_state, frame.room, count)))

    def _begins_too_long(self) -> bool:
        """Tell whether a beginning of the state passes what there is room for: the rest need not be read."""
        room, state, length = self._frame.room, self._matter.state, FIRST_LOOK
        while room is not None and length < len(state):
            beginning = JobMaker(self._frame, replace(self._matter, state=state[:length]))
            if beginning.state_tokens() > room + SEAM:
                return True
            length *= 4
        return False

    def _too_long(self, tokens: str, room: int | None) -> StateTooLong:
        return StateTooLong(
            f"has {tokens}; {room} fit beside these questions.",
            path=("state",),
            hint="Shorten the state, let read.long_state cut it, or start the engine with a "
            f"--max-model-len above {self._frame.capabilities.max_model_len}.",
        )

    def length(self, group: Group) -> int:
        """Return the tokens of a group's prompt and canvas, and of the longest thought that it may have."""
        opened = OpenGroup(group, tuple(Answered(asked, 0) for _, asked in group.given))
        thought = Thought((0,) * self._options.think, "", True, 0.0) if self._options.think else None
        slack = SLACK if self._options.rotate or self._options.restate else 0
        return len(self._arrangement(opened, 0, thought).prompt.ids) + group.canvas.width + slack

    def job(
        self,
        opened: OpenGroup,
        policy: ReadPolicy,
        *,
        may_extend: bool = True,
        thought: Thought | None = None,
    ) -> GroupJob:
        """Make a group's job."""
        options, tokenizer, group, matter = self._options, self._tokenizer, opened.group, self._matter
        orders = policy.most_draws if options.rotate else 1
        content = [group.content]
        if self._frame.plan.schema.context:
            content.append(self._frame.plan.schema.context)
        if opened.answered:
            content.append(content_of(each.asked.question for each in opened.answered))
            content.append(repr([each.answer for each in opened.answered]))
        content += (f"{image.media_type} {image.data!r}" for image in matter.images)
        return GroupJob(
            group=group,
            arrangements=tuple(self._arrangement(opened, turn, thought) for turn in range(orders)),
            seed=derive_seed(matter.seed, matter.state, *content),
            noise_ids=tokenizer.noise_ids,
            chunks=label_chunks(group.canvas.label_ids, self._frame.capabilities.max_label_ids),
            mask=tokenizer.mask if options.slot_fill == "mask" else None,
            steps=options.steps,
            constrained=options.constrained,
            may_extend=may_extend,
            thought=thought,
        )

    def thinking(self, opened: OpenGroup) -> Prompt:
        """Return the prompt that the model continues with its thought."""
        prompt = self._prompt(opened, opened.group.asked, self._tokenizer.thinking)
        return replace(prompt, ids=prompt.ids + self._tokenizer.scaffold[:-1])

    def _arrangement(self, opened: OpenGroup, turn: int, thought: Thought | None) -> Arrangement:
        # By the group's identity, which no other has while this one is kept.
        key = (id(opened.group), tuple(each.answer for each in opened.answered), turn, thought)
        found = self._arranged.get(key)
        if found is None:
            found = self._arranged[key] = opened.group, self._arrange(opened, turn, thought)
        return found[1]

    def _arrange(self, opened: OpenGroup, turn: int, thought: Thought | None) -> Arrangement:
        tokenizer, canvas = self._tokenizer, opened.group.canvas
        asked = tuple(each.turned(turn) for each in opened.group.asked)
        prompt = self._prompt(opened, asked, tokenizer.thinking if thought else tokenizer.chat)
        ids, scaffold, salt = prompt.ids, tokenizer.scaffold, prompt.cache_salt
        if thought is not None:
            ids += (*scaffold[:-1], *thought.ids, *scaffold[-1:])
        # The empty thought block stands once: at the end of the prompt, or at the head of the canvas.
        elif self._options.scaffold == "prompt" or canvas.opening.ids:
            ids += () if tokenizer.scaffold_in_prompt else scaffold
        elif tokenizer.scaffold_in_prompt:
            ids = ids[: len(ids) - len(scaffold)]
        if canvas.opening.ids:
            ids += canvas.opening.filled([each.answer for each in opened.answered])
        return Arrangement(Prompt(ids, prompt.segments, self._matter.images, salt), asked)

    def _prompt(self, opened: OpenGroup, asked: Sequence[Asked], chat: ChatFormat | None) -> Prompt:
        assert chat is not None, "thoughts were refused where there is no format for them"
        segments = build_prompt(
            chat,
            self._options.layout,
            self._options.template,
            asked,
            self._matter.state,
            context=self._frame.plan.schema.context,
            answered=opened.answered,
            restate=self._options.restate,
        )
        ids = self._encoded.get(segments)
        if ids is None:
            ids = self._encoded[segments] = self._tokenizer.encode_prompt(segments)
        return Prompt(ids, segments, cache_salt=self._matter.cache_salt)


def _refuse_options_for_wide_choices(plan: Plan, chunks: Sequence[Sequence[object]]) -> None:
    unwanted = {"constrained": plan.options.constrained, "steps": plan.options.steps > 1}
    for group, parts in zip(plan.groups, chunks, strict=True):
        for name, wanted in unwanted.items():
            if len(parts) > 1 and wanted:
                raise InvalidRequest(
                    f"cannot be had for {group.identifiers[0]}: its {len(group.canvas.label_ids)} label ids "
                    "take several reads on one scale.",
                    path=("read", name),
                )


def refuse_unsupported(
    options: ReadOptions, images: Sequence[Image], capabilities: Capabilities, tokenizer: Tokenizer
) -> None:
    """Refuse what the backend cannot do.

    Raises:
        InvalidRequest: it is asked for.
    """
    if options.steps > capabilities.max_steps:
        raise InvalidRequest(
            f"may be at most {capabilities.max_steps} with this backend, got {options.steps}.",
            path=("read", "steps"),
        )
    if options.constrained and not capabilities.constrained:
        raise InvalidRequest("is not possible with this backend.", path=("read", "constrained"))
    if options.think and not (capabilities.generation and tokenizer.thinking and tokenizer.scaffold):
        raise InvalidRequest(
            "is not possible here: the backend does not generate, or the model has no thought channel.",
            path=("read", "think"),
        )
    if options.think and (images or not capabilities.continues):
        raise InvalidRequest(
            "is not possible with images, or with an engine that takes chat messages only.",
            path=("read", "think"),
        )
    if images and not capabilities.images:
        raise InvalidRequest(
            "cannot be seen: this engine reads text only.", path=("images",), hint="Leave them out."
        )


def extensions_allowed(frame: Frame, policy: ReadPolicy) -> dict[tuple[str, ...], bool]:
    """Return for each group, by its questions, whether it may draw again without passing the limit of reads.

    Groups are read at the same time, so each knows beforehand: those that come first are served first.

    Raises:
        InvalidRequest: the draws that are asked for pass the limit themselves.
    """
    single = frame.reads_of_a_draw
    limit = max(MAX_READS, single) if policy.max_reads is None else policy.max_reads
    masked = frame.plan.options.slot_fill == "mask"  # then every draw would be the same
    draws = 1 if policy.samples == "auto" or masked else policy.samples
    if draws * single > limit:
        raise InvalidRequest(
            f"allows {limit} reads; {draws} draws of these questions take {draws * single}.",
            path=("read", "max_reads"),
            hint="Raise read.max_reads, or take fewer samples.",
        )
    left = limit - single
    allowed = {}
    for group, chunks in zip(frame.plan.groups, frame.chunks, strict=True):
        needed = policy.extra_draws * len(chunks)
        allowed[group.identifiers] = needed <= left
        left -= needed if needed <= left else 0
    return allowed
