"""Batches for training: texts drawn and varied, prompts and noisy canvases built, targets listed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import compose
import numpy as np
import prompts
import teacher
import texts
import torch
import wordings
from texts import Example
from torch import Tensor
from torch.utils.data import IterableDataset

from structured_server.tokenizer import LoadedTokenizer

BATCH = 32
SHOWN, TEMPLATE_NOISED = 0.06, 0.15


class Words:
    """Changes a text's words to others of the vocabulary that stand near in meaning, or drops some.

    What a text says may change with them, so the teacher reads it after that.
    """

    def __init__(self, tokenizer: LoadedTokenizer, vectors: teacher.Vectors) -> None:
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        spellings = [tokenizer.token_text(i) for i in range(tokenizer.vocabulary_size)]
        plain = [i for i, text in enumerate(spellings) if re.fullmatch(r" [a-z]{3,}", text)]
        near = unit[plain] @ unit[plain].T
        self._near: dict[str, list[str]] = {}
        for row, token in enumerate(plain):
            best = np.argpartition(-near[row], 8)[:8]
            self._near[spellings[token].strip()] = [
                spellings[plain[i]].strip() for i in best if i != row and near[row, i] > 0.45
            ]

    def change(self, text: str, choose: random.Random, *, mild: bool) -> str:
        """Return the text, a third of the time as it is; with `mild` more often, and never changed much."""
        kind = choose.random()
        if kind < (0.6 if mild else 0.35):
            return text
        exchanged, dropped = (0.10, 0.03) if mild or kind < 0.75 else (0.25, 0.08)

        def other(match: re.Match[str]) -> str:
            near = self._near.get(match[0].lower())
            if near is None:
                return match[0]
            if choose.random() < dropped:
                return ""
            return choose.choice(near) if near and choose.random() < exchanged else match[0]

        return re.sub(r"[A-Za-z]{3,}", other, text)


class Texts:
    """Draws texts: written ones in many voices, pairs of them, composed ones, ones that say nothing."""

    def __init__(self, choose: random.Random) -> None:
        written = texts.training()
        self._telling = [each for each in written if each.has_cue]
        self._shared = [each for each in self._telling if not each.is_clear]
        self._empty = [each for each in written if not each.has_cue]
        self._choose = choose

    def draw(self, *, mild: bool, plain: bool = False) -> tuple[Example, float]:
        """Return a text, and how much its own labels count beside the teacher's.

        With `mild` fewer of them are put together from others, and more are shared by two teams. With `plain`
        all are single ones that mean what they are labelled with: a model that hedges on what is clear has
        more entropy there than where two teams share a text.
        """
        choose = self._choose
        kind = choose.random()
        if plain:
            if kind < 0.10:
                return self._varied(choose.choice(self._empty)), 0.9
            return self._varied(choose.choice(self._shared if kind < 0.25 else self._telling)), 0.9
        if mild and 0.12 <= kind < 0.28:
            kind = 0.3 if kind < 0.18 else 1.0
        if kind < 0.10:
            return self._varied(choose.choice(self._empty)), 0.8
        if kind < 0.18:
            return compose.join(choose.choice(self._telling), choose.choice(self._telling), choose), 0.3
        if kind < 0.28:
            return compose.compose(choose), 0.3
        if kind < 0.40:
            return self._varied(choose.choice(self._shared)), 0.6
        example = choose.choice(self._telling)
        if choose.random() < 0.2:
            return self._varied(compose.soften(example, choose)), 0.0
        return self._varied(example), 0.5

    def _varied(self, example: Example) -> Example:
        return compose.vary(example, self._choose) if self._choose.random() < 0.6 else example


@dataclass(frozen=True)
class Batch:
    """A batch as tensors. `rows` are (example, position) whose targets are `targets` [rows, vocabulary]."""

    prefix: Tensor
    ids: Tensor
    positions: Tensor
    is_text: Tensor
    canvas: Tensor
    canvas_positions: Tensor
    rows: tuple[Tensor, Tensor]
    target_rows: Tensor
    target_ids: Tensor
    target_weights: Tensor
    row_weights: Tensor
    taught: Tensor  # the teacher's states


class Batches(IterableDataset[Batch]):
    """Makes batches for ever. The teacher labels every text, so that each is a new one."""

    def __init__(
        self,
        tokenizer: LoadedTokenizer,
        words: Words,
        judge: teacher.Teacher,
        seed: int,
        *,
        mild_after: int,
        plain: bool = False,
    ) -> None:
        """Make batches whose texts are varied only mildly after so many; with `plain` single ones only."""
        self._plain = plain
        self._tokenizer, self._words, self._judge = tokenizer, words, judge
        self._left = mild_after
        self._choose = random.Random(seed)
        self._texts = Texts(self._choose)
        end = tokenizer.chat.end
        self._tail = len(tokenizer.encode_prompt([prompts.Segment(prompts.Kind.CONTROL, end)]))
        self._tail += len(tokenizer.scaffold)

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches."""
        while True:
            self._left -= 1
            yield self._make()

    def _make(self) -> Batch:
        choose, tokenizer = self._choose, self._tokenizer
        kind = choose.random()
        if kind < 0.55:
            names = list(texts.GATED)
        elif kind < 0.72:
            names = choose.sample(texts.GATED, choose.randint(1, 2))
        else:
            names = choose.sample(wordings.NAMES, choose.randint(1, 5))
        asked = prompts.some_questions(tokenizer, choose, names)
        examples, taught = self._labelled(names)
        rests = [asked.rest(tokenizer, prompts.some_state(choose, example.text)) for example in examples]
        longest, shared = max(map(len, rests)), len(asked.prefix)
        ids = torch.zeros(BATCH, longest, dtype=torch.long)
        positions = torch.full((BATCH, longest), -1)
        is_text = torch.zeros(BATCH, longest)
        for row, rest in enumerate(rests):
            ids[row, : len(rest)] = torch.tensor(rest)
            positions[row, : len(rest)] = torch.arange(shared, shared + len(rest))
            is_text[row, : len(rest) - self._tail] = 1
        canvas, rows = self._canvases(asked, examples)
        starts = torch.tensor([shared + len(rest) for rest in rests])[:, None]
        return Batch(
            prefix=torch.tensor(asked.prefix)[None],
            ids=ids,
            positions=positions,
            is_text=is_text,
            canvas=canvas,
            canvas_positions=starts + torch.arange(canvas.shape[1]),
            taught=taught,
            **rows,
        )

    @torch.inference_mode()
    def _labelled(self, names: Sequence[str]) -> tuple[list[Example], Tensor]:
        """Draw texts whose targets are their labels mixed with the teacher's, and return its states too."""
        mild = self._left < 0
        drawn = [self._texts.draw(mild=mild, plain=self._plain) for _ in range(BATCH)]
        changed = [self._words.change(example.text, self._choose, mild=mild) for example, _ in drawn]
        said, states = self._judge(changed)
        found = []
        for row, (text, (example, own)) in enumerate(zip(changed, drawn, strict=True)):
            targets = {}
            for name in names:
                share = said[name][row].exp()
                share = share / share.sum()
                if name in example.targets:
                    share = own * torch.tensor(example.targets[name]) + (1 - own) * share
                targets[name] = tuple(share.tolist())
            found.append(Example(text, targets))
        return found, states.clone()

    def _canvases(self, asked: prompts.Asked, examples: list[Example]) -> tuple[Tensor, dict[str, object]]:
        """Fill canvases with noise in their slots, and list what each slot should have held."""
        choose, noise = self._choose, self._tokenizer.noise_ids
        base = list(asked.group.canvas.ids)
        filled, example_rows, places = [], [], []
        target_rows, target_ids, target_weights, row_weights = [], [], [], []

        def teach(
            example: int, place: int, tokens: list[int], weights: tuple[float, ...], weight: float
        ) -> None:
            target_rows.extend([len(example_rows)] * len(tokens))
            target_ids.extend(tokens)
            target_weights.extend(weights)
            example_rows.append(example)
            places.append(place)
            row_weights.append(weight)

        for index, example in enumerate(examples):
            canvas = list(base)
            slots = {slot.position for slot in asked.group.canvas.slots}
            for name, slot, labels in zip(
                asked.names, asked.group.canvas.slots, self._label_ids(asked), strict=True
            ):
                target = self._in_order(asked, name, example)
                if choose.random() < SHOWN:
                    canvas[slot.position] = choose.choices(labels, target)[0]
                else:
                    canvas[slot.position] = choose.choice(noise)
                    teach(index, slot.position, labels, target, 1.0)
            if choose.random() < TEMPLATE_NOISED:
                place = choose.choice([p for p in range(len(base)) if p not in slots])
                teach(index, place, [canvas[place]], (1.0,), 0.2)
                canvas[place] = choose.choice(noise)
            filled.append(canvas)
        return torch.tensor(filled), {
            "rows": (torch.tensor(example_rows), torch.tensor(places)),
            "target_rows": torch.tensor(target_rows),
            "target_ids": torch.tensor(target_ids),
            "target_weights": torch.tensor(target_weights),
            "row_weights": torch.tensor(row_weights),
        }

    def _label_ids(self, asked: prompts.Asked) -> list[list[int]]:
        """Return the ids of each slot's labels as they stand in their place."""
        return [
            [self._in_place(label, ids, asked) for label, ids in zip(each.labels, slot.options, strict=True)]
            for each, slot in zip(asked.group.asked, asked.group.canvas.slots, strict=True)
        ]

    def _in_place(self, label: str, ids: tuple[int, ...], asked: prompts.Asked) -> int:
        wanted = label if asked.options.template == "json" else f" {label}"
        exact = [i for i in ids if self._tokenizer.token_text(i) == wanted]
        return exact[0] if exact else ids[0]

    @staticmethod
    def _in_order(asked: prompts.Asked, name: str, example: Example) -> tuple[float, ...]:
        """Return the labels' distribution in the order in which the options are asked."""
        question = asked.group.asked[asked.names.index(name)].question
        options = texts.OPTIONS[name]
        target = example.targets[name]
        return tuple(target[options.index(option.word)] for option in question.options)
