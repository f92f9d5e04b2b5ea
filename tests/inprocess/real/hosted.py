"""A transformers backend in another process, as tests see it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engine.reads import draw
from tests.engine.server import ROOT, STATE, VENV, default_checkpoint, require_engine

HOST = Path(__file__).with_name("host.py")


@dataclass(frozen=True, slots=True)
class Asked:
    """A read to make: what a `ReadRequest` holds, in plain tuples."""

    prompt: tuple[int, ...]
    canvas: tuple[int, ...]
    positions: tuple[int, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a read came to: log-probabilities, a row a position and a number an id, and what was best."""

    logprobs: list[list[float]]
    tops: list[int]
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where `prepare` came to."""

    steps: list[tuple[str, str]]
    problem: str | None
    widths: tuple[int, ...]
    max_label_ids: int | None
    max_model_len: int | None


def vocabulary_size() -> int:
    """Return how many entries the checkpoint's vocabulary has."""
    config = json.loads((default_checkpoint() / "config.json").read_text("utf-8"))
    size: int = config["text_config"]["vocab_size"]
    return size


def asked(prompt: int = 20, width: int = 16, seed: int = 0, count: int = 3) -> Asked:
    """Make a read: a prompt of so many tokens, which alone decide its text, and a canvas of this seed."""
    ids = tuple(sorted({*draw(20, seed=5), 700, 701, 702}))
    positions = tuple(range(2, width, max(1, width // count)))
    return Asked(
        tuple(draw(prompt, seed=prompt)), tuple(draw(width, seed=1000 * width + seed)), positions, ids
    )


class Hosted:
    """tests/inprocess/real/host.py as a process."""

    def __init__(self, name: str) -> None:
        require_engine()
        self._log = STATE / "logs" / f"{name}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                [VENV / "bin" / "python", HOST],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # Threads that wait for each other are slow where a server runs beside them.
                env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )

    def make(self, **settings: Any) -> None:
        """Make a backend on the default checkpoint, unless told otherwise, instead of the last one."""
        folder = str(default_checkpoint())
        defaults = {"source": folder, "tokenizer": folder, "canvas": 64, "device": "cpu", "dtype": "float32"}
        self._ask("make", defaults | settings)

    def prepare(self) -> Prepared:
        """Walk the steps."""
        answer = self._ask("prepare", [])
        return Prepared(
            [(name, waits_for) for name, waits_for in answer["steps"]],
            answer["problem"],
            tuple(answer["widths"]),
            answer["max_label_ids"],
            answer["max_model_len"],
        )

    def ready(self, **settings: Any) -> None:
        """Make a backend that must become ready."""
        self.make(**settings)
        assert self.prepare().problem is None

    def read(self, *batches: Sequence[Asked]) -> tuple[list[list[Answer]], list[int]]:
        """Make reads, all batches at once, and return the answers and the sizes of what the model got."""
        outcomes, sizes = self._read(batches)
        reads = [
            [
                Answer([_row(row, each.ids) for row in read.pop("logprobs")], **read)
                for each, read in zip(batch, outcome["reads"], strict=True)
            ]
            for batch, outcome in zip(batches, outcomes, strict=True)
        ]
        return reads, sizes

    def failures(self, *batches: Sequence[Asked]) -> list[tuple[str, str] | None]:
        """Make reads, all batches at once, and return the errors' kinds and messages, None for a success."""
        outcomes, _ = self._read(batches)
        return [None if "reads" in outcome else (outcome["kind"], outcome["message"]) for outcome in outcomes]

    def give_up(self, batch: Sequence[Asked], turns: int, seconds: float = 0.0) -> None:
        """Cancel a batch after so many turns of the event loop, and so many seconds."""
        assert self._ask("give_up", [_plain(batch), turns, seconds])["cancelled"]

    def watch(self, seconds: float) -> str | None:
        """Return what became of the backend, None if nothing did for so long."""
        lost: str | None = self._ask("watch", seconds)["lost"]
        return lost

    def close(self) -> str:
        """End the process and return what it wrote to standard error."""
        self._process.communicate(timeout=20)
        assert 0 == self._process.returncode, self._log.read_text()
        return self._log.read_text()

    def _read(self, batches: Sequence[Sequence[Asked]]) -> tuple[list[dict[str, Any]], list[int]]:
        answer = self._ask("read", list(map(_plain, batches)))
        return answer["outcomes"], answer["batches"]

    def _ask(self, command: str, arguments: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({command: arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        answer: dict[str, Any] = json.loads(line)
        return answer


def _plain(batch: Sequence[Asked]) -> list[list[tuple[int, ...]]]:
    return [[each.prompt, each.canvas, each.positions, each.ids] for each in batch]


def _row(pairs: list[tuple[int, float]], ids: Sequence[int]) -> list[float]:
    row = dict(pairs)
    return [row[token_id] for token_id in ids]
