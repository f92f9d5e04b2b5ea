"""Batches for training: texts drawn and varied, prompts and noisy canvases built, targets listed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
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

from structured_server.tokenizer import LoadedTokenizer

BATCH = 32
SHOWN, TEMPLATE_NOISED = 0.06, 0.15
# Words whose exchange would change what a text says about whose problem it is, how bad, or how urgent.
_PROTECTED = frozenset(
    """
    no not none all every nothing nobody everyone everybody only one some many most few half down up full
    minor major critical resolved fixed open closed without never always still again over under now later
    tomorrow yesterday before after until since customers customer
    """.split()  # noqa: SIM905  sixty quoted strings read worse
)


class Words:
    """Changes a text's tokens to others nearby, or drops some."""

    def __init__(self, tokenizer: LoadedTokenizer, vectors: teacher.Vectors) -> None:
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        spellings = [tokenizer.token_text(i) for i in range(tokenizer.vocabulary_size)]
        plain = [
            i
            for i, text in enumerate(spellings)
            if re.fullmatch(r" [A-Za-z][a-z]{2,}", text) and text.strip().lower() not in _PROTECTED
        ]
        near = unit[plain] @ unit[plain].T
        self._near: dict[int, list[int]] = {}
        for row, token in enumerate(plain):
            best = np.argpartition(-near[row], 5)[:5]
            self._near[token] = [plain[i] for i in best if i != row and near[row, i] > 0.55]

    def change(self, ids: tuple[int, ...], choose: random.Random) -> list[int]:
        """Return the ids, a third of the time as they are."""
        kind = choose.random()
        if kind < 0.35:
            return list(ids)
        exchanged, dropped = (0.10, 0.03) if kind < 0.75 else (0.20, 0.08)
        changed = []
        for token in ids:
            near = self._near.get(token)
            if near is None:
                changed.append(token)
            elif choose.random() >= dropped:
                changed.append(choose.choice(near) if near and choose.random() < exchanged else token)
        return changed


class Texts:
    """Draws texts: written ones in many voices, composed ones, ones that say nothing."""

    def __init__(self, choose: random.Random) -> None:
        written = texts.training()
        new = [each for each in written if "sentiment" in each.targets]
        self._labelled = [each for each in new if each.has_cue]
        self._first = [each for each in written if each.has_cue and "sentiment" not in each.targets]
        self._empty = [each for each in written if not each.has_cue]
        self._empty_labelled = [each for each in new if not each.has_cue]
        self._choose = choose

    def draw(self, *, labelled: bool) -> tuple[Example, str]:
        """Return a text, as varied, and the text it came from. With `labelled` every question has a label."""
        choose = self._choose
        kind = choose.random()
        if kind < 0.14:
            example = choose.choice(self._empty_labelled if labelled else self._empty)
        elif labelled or kind < 0.60:
            example = choose.choice(self._labelled)
        elif kind < 0.80:
            example = choose.choice(self._first)
        else:
            example = compose.compose(choose)
            return example, example.text
        origin = example.text
        if choose.random() < 0.1:
            example = compose.soften(example, choose)
        return compose.vary(example, choose) if choose.random() < 0.6 else example, origin


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
    taught: Tensor  # the teacher's vectors


class Batches:
    """Makes batches for ever."""

    def __init__(
        self, tokenizer: LoadedTokenizer, words: Words, vectors: dict[str, np.ndarray], seed: int
    ) -> None:
        self._tokenizer, self._words, self._vectors = tokenizer, words, vectors
        self._choose = random.Random(seed)
        self._texts = Texts(self._choose)
        self._mean = np.mean(list(vectors.values()), 0)
        end = tokenizer.chat.end
        self._tail = len(tokenizer.encode_prompt([prompts.Segment(prompts.Kind.CONTROL, end)]))
        self._tail += len(tokenizer.scaffold)

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches."""
        while True:
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
        labelled = bool(set(names) - set(texts.GATED))
        drawn = [self._texts.draw(labelled=labelled) for _ in range(BATCH)]
        rests = []
        for example, _ in drawn:
            rest = asked.rest(tokenizer, prompts.some_state(choose, example.text))
            body = self._words.change(rest[: -self._tail], choose)
            rests.append([*body, *rest[-self._tail :]])
        longest, shared = max(map(len, rests)), len(asked.prefix)
        ids = torch.zeros(BATCH, longest, dtype=torch.long)
        positions = torch.full((BATCH, longest), -1)
        is_text = torch.zeros(BATCH, longest)
        for row, rest in enumerate(rests):
            ids[row, : len(rest)] = torch.tensor(rest)
            positions[row, : len(rest)] = torch.arange(shared, shared + len(rest))
            is_text[row, : len(rest) - self._tail] = 1
        canvas, rows = self._canvases(asked, [example for example, _ in drawn])
        starts = torch.tensor([shared + len(rest) for rest in rests])[:, None]
        known = [self._vectors.get(origin) for _, origin in drawn]
        taught = np.stack([self._mean if vector is None else vector for vector in known]) - self._mean
        return Batch(
            prefix=torch.tensor(asked.prefix)[None],
            ids=ids,
            positions=positions,
            is_text=is_text,
            canvas=canvas,
            canvas_positions=starts + torch.arange(canvas.shape[1]),
            taught=torch.from_numpy(taught.astype(np.float32)),
            **rows,
        )

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
