"""Fine-tunes the teacher on the written texts: `teach.py OUT` writes teacher.pt into OUT. Seeded."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import compose
import texts
import torch
from teacher import Teacher
from texts import Example
from torch import Tensor
from tqdm import tqdm

BATCH = 16
RATE, HEAD_RATE, WARM_UP = 1e-4, 2e-3, 100


def loss_of(teacher: Teacher, examples: list[Example]) -> Tensor:
    """Return the cross entropy with the labels, over the questions that have any."""
    found, _ = teacher([each.text for each in examples])
    total = torch.zeros(())
    for name, logs in found.items():
        rows = [row for row, each in enumerate(examples) if name in each.targets]
        if rows:
            targets = torch.tensor([examples[row].targets[name] for row in rows])
            total = total - (logs[rows] * targets).sum() / len(examples)
    return total


@torch.inference_mode()
def quick(teacher: Teacher) -> dict[str, float]:
    """Return the accuracies on clear validation texts."""
    clear = [each for each in texts.validation() if each.has_cue and each.is_clear]
    teacher.eval()
    found, _ = teacher([each.text for each in clear])
    teacher.train()
    return {
        name: round(
            sum(
                row.argmax().item() == each.answer(name) for row, each in zip(found[name], clear, strict=True)
            )
            / len(clear),
            3,
        )
        for name in texts.GATED
    }


def main() -> None:
    """Read the command line and fine-tune."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--begin", type=Path, help="weights to begin from, such as an earlier teacher.pt")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    choose = random.Random(arguments.seed)
    teacher = Teacher().train()
    if arguments.begin is not None:
        teacher.load_state_dict(torch.load(arguments.begin, weights_only=True))
    body, head = list(teacher.body.parameters()), list(teacher.head.parameters())
    optimizer = torch.optim.AdamW([{"params": body}, {"params": head}], weight_decay=0.05)
    written = texts.training()
    steps = arguments.epochs * (len(written) // BATCH)
    order: list[Example] = []
    progress = tqdm(range(steps), unit="step", mininterval=5)
    for step in progress:
        if len(order) < BATCH:
            order = choose.sample(written, len(written))
        batch = [order.pop() for _ in range(BATCH)]
        batch = [compose.vary(each, choose) if choose.random() < 0.5 else each for each in batch]
        if choose.random() < 0.3:  # pairs of texts are part of what the student is shown
            batch[0] = compose.join(batch[0], batch[1], choose)
        for group, rate in zip(optimizer.param_groups, (RATE, HEAD_RATE), strict=True):
            group["lr"] = rate * min(1, (step + 1) / WARM_UP) * (1 - step / steps)
        loss = loss_of(teacher, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(body, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            progress.set_postfix(loss=f"{loss.item():.3f}")
        if (step + 1) % (steps // arguments.epochs) == 0:
            tqdm.write(f"{step + 1} {quick(teacher)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.save(teacher.state_dict(), arguments.out / "teacher.pt")


if __name__ == "__main__":
    main()
