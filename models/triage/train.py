"""Trains the model: `train.py CHECKPOINT OUT`. Seeded; writes weights, a loss curve and a log.

The model is taught on the server's own prompts. Each step asks one set of questions about a batch of texts,
so that the questions, which stand first, are encoded once. Slots hold noise, as when the server reads them,
and the targets are distributions over the options: soft where a text is, uniform where it says nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import compose
import evaluate
import matplotlib
import numpy as np
import prompts
import teacher
import texts
import torch
import wordings
from net import Net, Shape
from texts import Example
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from structured_server.tokenizer import LoadedTokenizer, load_tokenizer

matplotlib.use("Agg")
from matplotlib import pyplot

BATCH = 32
EMBEDDING_RATE, RATE, FLOOR = 3e-4, 2.2e-3, 0.03
WARM_UP = 80
SHOWN, TEMPLATE_NOISED = 0.06, 0.15
# Words whose exchange would change what a text says about whose problem it is, how bad, or how urgent.
_PROTECTED = frozenset(
    """
    no not none all every nothing nobody everyone everybody only one some many most few half down up full
    minor major critical resolved fixed open closed without never always still again over under now later
    tomorrow yesterday before after until since customers customer
    """.split()  # noqa: SIM905  sixty quoted strings read worse
)


@dataclass(frozen=True)
class Settings:
    """What a run is made of."""

    steps: int  # over which the learning rate falls
    stop: int  # step to end after
    seed: int


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
        self._close = len(tokenizer.encode_prompt([])) or 0
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


def initialise(net: Net, embeddings: teacher.Vectors) -> None:
    """Draw the weights; embeddings come from the teacher, and attention starts out unpeaked."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
            elif name.endswith("q_norm.weight"):
                parameter.fill_(net.shape.head_dim**-0.5)
        net.embed_tokens.weight.copy_(torch.from_numpy(embeddings))


def losses(net: Net, head: torch.nn.Linear, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return cross entropy at the rows, the targets' own entropy, and the distance to the teacher."""
    count = len(batch.ids)
    first = torch.arange(batch.prefix.shape[1])[None]
    shared, _ = net.encode(batch.prefix, first, net.empty(), first[:, :0])
    shared, first = shared.expand(-1, -1, count, -1, -1, -1), first.expand(count, -1)
    rest, states = net.encode(batch.ids, batch.positions, shared, first)
    past, past_positions = torch.cat((shared, rest), 4), torch.cat((first, batch.positions), 1)
    final = net.read(batch.canvas, batch.canvas_positions, past, past_positions)
    with torch.autocast("cpu", enabled=False):
        logits = net.logits(final[batch.rows].float()).log_softmax(-1)
        chosen = logits[batch.target_rows, batch.target_ids]
        weight = batch.row_weights[batch.target_rows] * batch.target_weights
        total = batch.row_weights.sum()
        entropy = (weight * batch.target_weights.clamp_min(1e-9).log()).sum().neg() / total
        mask = batch.is_text[..., None]
        pooled = (states.float() * mask).sum(1) / mask.sum(1).clamp_min(1)
        distance = 1 - F.cosine_similarity(head(pooled), batch.taught)
        known = batch.taught.abs().sum(1) > 0
        return -(chosen * weight).sum() / total, entropy, distance[known].mean()


def train(settings: Settings, checkpoint: Path, out: Path) -> None:
    """Train, and write net.pt, log.json and loss.png into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    tokenizer = load_tokenizer(str(checkpoint))
    net = Net(Shape(vocabulary=tokenizer.vocabulary_size))
    spellings = [tokenizer.token_text(i) for i in range(tokenizer.vocabulary_size)]
    start = teacher.start_embeddings(spellings, net.shape.hidden, seed=settings.seed)
    initialise(net, start)
    origins = [each.text for each in texts.training()]
    vectors = dict(zip(origins, teacher.embed(origins), strict=True))
    batches = iter(Batches(tokenizer, Words(tokenizer, start), vectors, settings.seed))
    head = torch.nn.Linear(net.shape.hidden, teacher.WIDTH)
    embedding = net.embed_tokens.weight
    others = [each for each in net.parameters() if each is not embedding] + list(head.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [embedding], "weight_decay": 0.0}, {"params": others, "weight_decay": 0.05}],
        lr=1e-3,
        betas=(0.9, 0.98),
    )
    log, begun = [], time.time()
    progress = tqdm(range(1, settings.stop + 1), unit="step", mininterval=5)
    for step in progress:
        done = step / settings.steps
        scale = min(1, step / WARM_UP) * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * done)))
        for group, rate in zip(optimizer.param_groups, (EMBEDDING_RATE, RATE), strict=True):
            group["lr"] = rate * scale
        with torch.autocast("cpu", torch.bfloat16):
            cross, entropy, distance = losses(net, head, next(batches))
        (cross + distance * (1.0 if done < 0.6 else 0.4)).backward()
        torch.nn.utils.clip_grad_norm_([*others, embedding], 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        entry = {"step": step, "loss": (cross - entropy).item(), "distance": distance.item()}
        log.append(entry)
        if step % 20 == 0:
            recent = log[-50:]
            progress.set_postfix(kl=f"{np.mean([e['loss'] for e in recent]):.3f}", lr=f"{scale:.2f}")
        if step % 400 == 0 or step == settings.stop:
            entry["validation"] = evaluate.quick(net, tokenizer, texts.validation())
            tqdm.write(f"{step} {(time.time() - begun) / 60:.1f} min {entry['validation']}")
            torch.save(net.state_dict(), out / "net.pt")
            (out / "log.json").write_text(
                json.dumps({"minutes": (time.time() - begun) / 60, "steps": log}) + "\n"
            )
    _draw(log, out / "loss.png")


def _draw(log: list[dict[str, object]], file: Path) -> None:
    """Draw the loss over the steps, smoothed, and the validation accuracies."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    loss = np.array([entry["loss"] for entry in log], float)
    width = max(1, len(loss) // 100)
    left.plot(np.convolve(loss, np.ones(width) / width, "valid"))
    left.set(xlabel="step", ylabel="KL to the labels, nats a slot", title="Training loss")
    seen = [entry for entry in log if "validation" in entry]
    for name in texts.GATED:
        right.plot([e["step"] for e in seen], [e["validation"][name] for e in seen], label=name)
    right.set(xlabel="step", ylabel="accuracy", title="Validation, clear texts", ylim=(0, 1))
    right.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="folder that holds the tokenizer")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--steps", type=int, default=3400, help="over which the learning rate falls")
    parser.add_argument(
        "--stop", type=int, default=1600, help="step to end after: later ones only grow surer"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="more than one pays only on an idle machine")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    train(Settings(arguments.steps, arguments.stop, arguments.seed), arguments.checkpoint, arguments.out)


if __name__ == "__main__":
    main()
