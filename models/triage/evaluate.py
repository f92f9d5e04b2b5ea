"""Judges a model on labelled texts, read one by one as the server reads them."""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import prompts
import texts
import torch
import wordings
from judging import Read, Reading, judge, report
from net import Net, Shape, round_to_fp16
from texts import Example
from tqdm import tqdm

from structured_server.core.distribution import distribution
from structured_server.core.plan import ReadOptions
from structured_server.core.reads import derive_seed, fill_with_noise
from structured_server.tokenizer import LoadedTokenizer, load_tokenizer


@torch.inference_mode()
def read(
    net: Net, tokenizer: LoadedTokenizer, example: Example, asked: prompts.Asked, *, draw: int = 0
) -> Reading:
    """Return the distributions of one draw."""
    ids = prompts.prompt_ids(tokenizer, asked.options, asked.group, example.text)
    seed = derive_seed(0, example.text, asked.group.content)
    canvas = fill_with_noise(asked.group.canvas, seed, draw, tokenizer.noise_ids)
    positions = torch.arange(len(ids))[None]
    past, _ = net.encode(torch.tensor(ids)[None], positions, net.empty(), positions[:, :0])
    places = torch.arange(len(ids), len(ids) + len(canvas))[None]
    states = net.read(torch.tensor(canvas)[None], places, past, positions)[0]
    slots = asked.group.canvas.slots
    rows = net.logits(states[[slot.position for slot in slots]]).log_softmax(-1).tolist()
    return {
        name: distribution([[row[i] for i in option] for option in slot.options]).probabilities
        for name, slot, row in zip(asked.names, slots, rows, strict=True)
    }


def standard(tokenizer: LoadedTokenizer) -> prompts.Asked:
    """Lay out the three gated questions in their standard wording."""
    return prompts.ask(tokenizer, wordings.standard_schema(), ReadOptions(), texts.GATED)


def quick(
    net: Net, tokenizer: LoadedTokenizer, examples: Sequence[Example], *, most: int = 160
) -> dict[str, float]:
    """Return accuracies on some clear texts, to watch a training run by."""
    clear = [each for each in examples if each.has_cue and each.is_clear]
    chosen = random.Random(0).sample(clear, min(most, len(clear)))
    asked = standard(tokenizer)
    right = dict.fromkeys(texts.GATED, 0)
    for example in chosen:
        reading = read(net, tokenizer, example, asked)
        for name in texts.GATED:
            right[name] += reading[name].index(max(reading[name])) == example.answer(name)
    return {name: round(count / len(chosen), 3) for name, count in right.items()}


def read_all(
    net: Net, tokenizer: LoadedTokenizer, examples: Sequence[Example], *, draws: int = 4
) -> list[Read]:
    """Read every text with each of several draws."""
    asked = standard(tokenizer)
    found = []
    for example in tqdm(examples, unit="text", mininterval=5):
        readings = [read(net, tokenizer, example, asked, draw=draw) for draw in range(draws)]
        pooled = {
            name: tuple(
                math.fsum(column) / draws for column in zip(*(r[name] for r in readings), strict=True)
            )
            for name in readings[0]
        }
        found.append(Read(example, readings[0], pooled))
    return found


def main() -> None:
    """Read the command line, evaluate, and write the figures and the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "net", type=Path, help="net.pt, as train.py writes it; rounded to fp16 before it is judged"
    )
    parser.add_argument("tokenizer", type=Path, help="folder that holds the tokenizer")
    parser.add_argument("out", type=Path, help="folder to write evaluation.json and EVALUATION.md into")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(str(arguments.tokenizer))
    net = Net(Shape(vocabulary=tokenizer.vocabulary_size))
    net.load_state_dict(torch.load(arguments.net, weights_only=True))
    round_to_fp16(net)
    net.eval()
    valid, judged = (read_all(net, tokenizer, each) for each in (texts.validation(), texts.gate()))
    figures = judge(valid, judged)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "evaluation.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    page = report(figures)
    (arguments.out / "EVALUATION.md").write_text(page, "utf-8")
    print(page)


if __name__ == "__main__":
    main()
