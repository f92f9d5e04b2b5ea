"""What an entropy threshold means, and how often the embedded model draws again: a table of docs/method.md.

    python -m benchmarks.thresholds

Reads the eight incidents and the validation texts once each, with the model in the package. Prints Markdown.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from structured_server.api.service import Service, build
from structured_server.core.answers import Answer
from structured_server.core.policy import ReadPolicy
from structured_server.driver import Query
from structured_server.settings import Settings
from structured_server.wire.decide_request import DecideRequest
from structured_server.wire.fields import text_of_state

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "incident_triage"
CORPUS = ROOT / "models" / "triage" / "corpus"
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
DEADLINE_S = 60.0

Entropies = dict[str, float]


def top_probability(threshold: float, options: int) -> float | None:
    """Return the top probability at which the entropy is the threshold, the other options sharing the rest.

    None where no distribution over so many options has so high an entropy.
    """
    if threshold >= math.log(options):
        return None
    low, high = 1 / options, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        rest = 1 - middle
        entropy = -middle * math.log(middle)
        entropy -= rest * math.log(rest / (options - 1)) if rest > 0 else 0.0
        low, high = (middle, high) if entropy > threshold else (low, middle)
    return low


def table(groups: dict[str, Sequence[Entropies]]) -> list[str]:
    """Return the table: a row a threshold, with what it means and the share of texts that extend."""
    head = ["threshold, nats", *(f"top of {k}" for k in (2, 3, 4, 5)), *groups]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for threshold in THRESHOLDS:
        tops = (top_probability(threshold, options) for options in (2, 3, 4, 5))
        shares = (
            sum(max(each.values()) > threshold for each in entropies) / len(entropies)
            for entropies in groups.values()
        )
        cells = [f"{threshold:g}", *(f"{p:.3f}" if p else "never" for p in tops)]
        lines.append(f"| {' | '.join([*cells, *(f'{share:.0%}' for share in shares)])} |")
    return lines


async def read(service: Service, texts: Iterable[str]) -> list[Entropies]:
    """Return the first draw's entropy of each question about each text."""
    questions = yaml.safe_load((EXAMPLE / "questions.yaml").read_text("utf-8"))
    schema = DecideRequest(state="", questions=questions).schema_of_questions()
    found = []
    for text in texts:
        query = Query(schema, text, service.read_options, ReadPolicy(samples=1), 0, DEADLINE_S)
        outcome = await service.driver.decide(query)
        answers = outcome.decision.answers.items()
        found.append({name: each.first_entropy for name, each in answers if isinstance(each, Answer)})
    return found


def as_state(incident: dict[str, str]) -> str:
    """Return an incident as the demo sends it."""
    state = {"alert": incident["title"], "detail": incident["text"]}
    return text_of_state(state, ("state",))


async def main() -> None:
    """Read all texts and print the table."""
    service = build(Settings(backend="embedded"))
    async for _ in service.backend.prepare():
        pass
    incidents = yaml.safe_load((EXAMPLE / "incidents.yaml").read_text("utf-8"))
    lines = [
        line.split("|", 1) for line in (CORPUS / "validation.txt").read_text("utf-8").splitlines() if line
    ]
    clear = [text for labels, text in lines if len(labels.split()[0]) == 1]
    ambiguous = [text for labels, text in lines if len(labels.split()[0]) > 1]
    silent = [
        line.split("|", 1)[1]
        for line in (CORPUS / "validation_nocue.txt").read_text("utf-8").splitlines()
        if line
    ]
    groups = {
        "incidents": [as_state(each) for each in incidents],
        f"clear ({len(clear)})": clear,
        f"ambiguous ({len(ambiguous)})": ambiguous,
        f"no cue ({len(silent)})": silent,
    }
    print("\n".join(table({name: await read(service, texts) for name, texts in groups.items()})))
    await service.backend.close()


if __name__ == "__main__":
    asyncio.run(main())
