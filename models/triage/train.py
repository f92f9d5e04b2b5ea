"""Trains the model: `train.py CHECKPOINT OUT`. Seeded; writes weights, a loss curve and a log.

The model is taught on the server's own prompts. Each step asks one set of questions about a batch of texts,
so that the questions, which stand first, are encoded once. Slots hold noise, as when the server reads them,
and the targets are distributions over the options: the labels' and the teacher's, mixed. Another process
varies the texts and has the teacher read them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import evaluate
import matplotlib
import numpy as np
import teacher
import texts
import torch
from batches import Batch, Batches, Words
from net import Net, Shape
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader
from tqdm import tqdm

from structured_server.tokenizer import load_tokenizer

matplotlib.use("Agg")
from matplotlib import pyplot

EMBEDDING_RATE, RATE, FLOOR = 3e-4, 2.2e-3, 0.03
WARM_UP = 80
MILD_AFTER = 0.65  # of the steps: then texts are as they are written, most of the time


@dataclass(frozen=True)
class Settings:
    """What a run is made of."""

    steps: int  # over which the learning rate falls
    stop: int  # step to end after
    rate: float  # the highest learning rate, as a share of a new model's
    seed: int
    plain: bool = False  # single texts by their own labels, from the beginning


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
        return -(chosen * weight).sum() / total, entropy, distance.mean()


def train(settings: Settings, checkpoint: Path, out: Path, begun_from: Path | None) -> None:
    """Train, new weights or those of a file, and write net.pt, log.json and loss.png into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    tokenizer = load_tokenizer(str(checkpoint))
    net = Net(Shape(vocabulary=tokenizer.vocabulary_size))
    spellings = [tokenizer.token_text(i) for i in range(tokenizer.vocabulary_size)]
    start = teacher.start_embeddings(spellings, net.shape.hidden, seed=settings.seed)
    initialise(net, start)
    if begun_from is not None:
        net.load_state_dict(torch.load(begun_from, weights_only=True))
    judge = teacher.Teacher().eval()
    judge.load_state_dict(torch.load(out / "teacher.pt", weights_only=True))
    mild_after = 0 if settings.plain else round(MILD_AFTER * settings.steps)
    made = Batches(
        tokenizer, Words(tokenizer, start), judge, settings.seed, mild_after=mild_after, plain=settings.plain
    )
    batches = iter(DataLoader(made, batch_size=None, num_workers=1, prefetch_factor=8))
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
            group["lr"] = rate * settings.rate * scale
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
    parser.add_argument("out", type=Path, help="folder that holds teacher.pt, to write into")
    parser.add_argument("--steps", type=int, default=4300, help="over which the learning rate falls")
    parser.add_argument("--stop", type=int, default=4300, help="step to end after")
    parser.add_argument("--begin", type=Path, help="weights to begin from, such as net.pt of an earlier run")
    parser.add_argument("--rate", type=float, default=1.0, help="highest learning rate, times a new model's")
    parser.add_argument("--plain", action="store_true", help="single texts only, by their own labels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="more than one pays only on an idle machine")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    settings = Settings(arguments.steps, arguments.stop, arguments.rate, arguments.seed, arguments.plain)
    train(settings, arguments.checkpoint, arguments.out, arguments.begin)


if __name__ == "__main__":
    main()
