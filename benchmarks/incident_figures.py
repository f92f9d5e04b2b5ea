"""What the incident benchmark reads and computes: the shapes of its inputs, and the figures of its receipt.

Pure: no clock, no files, no HTTP. `incident_triage.py` makes the calls, `incident_tables.py` shows them.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

READS: Mapping[str, int | str] = {"first": 1, "extended": 4, "auto": "auto"}
"""What is timed, and the `read.samples` that asks for it."""

Questions = Mapping[str, Mapping[str, Any]]
Outcome = Literal["valid", "not_allowed", "unparsed", "failed"]


class Incident(BaseModel):
    """One alert; a clear one has an expected word per question, an ambiguous one has plausible teams."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    clear: bool
    title: str
    text: str
    expected: dict[str, str] = {}
    plausible: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_what_it_is_judged_by(self) -> Self:
        if bool(self.expected) != self.clear or bool(self.plausible) == self.clear:
            raise ValueError("a clear incident has `expected`, an ambiguous one `plausible`")
        return self

    @property
    def state(self) -> dict[str, str]:
        """What the questions are about."""
        return {"alert": self.title, "detail": self.text}

    def judge(self, words: Mapping[str, str | None]) -> tuple[int, int]:
        """Count the answers that a careful reader could give, and the answers that were judged."""
        if self.clear:
            return sum(words.get(name) == word for name, word in self.expected.items()), len(self.expected)
        return int(words.get("team") in self.plausible), 1


class Answer(BaseModel):
    """The part of one answer of /decide that is measured."""

    type: Literal["noul", "choice", "score"]
    answer: bool | int | str | None
    probabilities: dict[str, float]
    legend: dict[str, str] = {}
    entropy: float
    label_mass: float | None

    @model_validator(mode="after")
    def _can_be_spelled(self) -> Self:
        keys = [*self.probabilities, *([] if self.answer is None else [str(self.answer)])]
        known = {"noul": {"true", "false"}, "score": set(self.legend), "choice": set(self.probabilities)}
        if not {key.lower() if self.type == "noul" else key for key in keys} <= known[self.type]:
            raise ValueError("an answer or a probability is keyed by something that is no option")
        return self

    @property
    def word(self) -> str | None:
        """The decided option as the canvas spells it; None where the server abstained."""
        return None if self.answer is None else self._spell(str(self.answer))

    @property
    def distribution(self) -> dict[str, float]:
        """Probability by word."""
        return {self._spell(key): value for key, value in self.probabilities.items()}

    def _spell(self, key: str) -> str:
        if self.type == "noul":
            return {"true": "yes", "false": "no"}[key.lower()]
        return self.legend[key] if self.type == "score" else key


class Reading(BaseModel):
    """How often the canvas was read, and which questions asked for more."""

    reads: int
    extended: bool
    extended_by: list[str]


class Usage(BaseModel):
    """Tokens: of the prompt, of all the engine's prompts, and those that its cache held."""

    input_tokens: int
    engine_input_tokens: int
    cached_input_tokens: int | None


class Timings(BaseModel):
    """The server's own milliseconds."""

    engine: float
    total: float


class Decision(BaseModel):
    """The part of the body of /decide that is measured."""

    model: str
    answers: dict[str, Answer]
    reading: Reading
    usage: Usage
    timings_ms: Timings
    provenance: dict[str, str | None]

    @property
    def words(self) -> dict[str, str | None]:
        """The decided word of each question."""
        return {name: answer.word for name, answer in self.answers.items()}

    def answers_all(self, questions: Questions) -> bool:
        """Tell whether there is a probability for every option of every question, and for nothing else."""
        asked = {name: set(options(question)) for name, question in questions.items()}
        return asked == {name: set(answer.distribution) for name, answer in self.answers.items()}


@dataclass(frozen=True, slots=True)
class Timed:
    """A decision and the milliseconds that its caller waited."""

    ms: float
    decision: Decision


@dataclass(frozen=True, slots=True)
class Generated:
    """One generated reply: milliseconds waited, what became of it, and its words where all are allowed."""

    ms: float
    outcome: Outcome
    words: dict[str, str] | None = None


def latency(values: Sequence[float]) -> dict[str, Any]:
    """Summarise milliseconds: median, p95 (linear between neighbours), the values; nulls without any."""
    middle, high = (statistics.median(values), float(np.percentile(values, 95))) if values else (None, None)
    return {"median_ms": middle, "p95_ms": high, "ms": list(values)}


def options(question: Mapping[str, Any]) -> tuple[str, ...]:
    """List the words that may stand in the answer to a question."""
    return ("yes", "no") if question["type"] == "noul" else tuple(question["criteria"])


def parse_generated(text: str, questions: Questions) -> tuple[Outcome, dict[str, str] | None]:
    """Read a generated reply as the JSON that was asked for; a Markdown fence around it is forgiven."""
    fenced = re.fullmatch(r"```\w*\s*(.*?)\s*```", text.strip(), flags=re.DOTALL)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return "unparsed", None
    allowed = isinstance(value, dict) and value.keys() == questions.keys()
    if not allowed or any(value[name] not in options(question) for name, question in questions.items()):
        return "not_allowed", None
    return "valid", value


def generation_prompt(questions: Questions) -> str:
    """Put the questions into words for plain generation, with the same instructions and criteria."""
    shape = json.dumps({name: f"<{name}>" for name in questions}, separators=(",", ":"))
    lines = [f"Answer with this JSON on one line and nothing else: {shape}"]
    for name, question in questions.items():
        criteria = question["criteria"]
        if question["type"] == "noul":
            criteria = {"yes": criteria["true"], "no": criteria["false"]}
        notes = criteria if isinstance(criteria, Mapping) else {}
        lines += ["", f"<{name}>: {question['instructions']} One word of:"]
        for word in options(question):
            lines.append(f"- {word}: {notes[word]}" if notes.get(word) else f"- {word}")
    return "\n".join(lines)


def drift(decisions: Sequence[Decision]) -> float:
    """Return the largest change of any probability between the first decision and a later one."""
    first, *later = ({n: answer.distribution for n, answer in d.answers.items()} for d in decisions)
    changes = (abs(one[n][word] - p) for one in later for n in first for word, p in first[n].items())
    return max(changes, default=0.0)


def record(
    incident: Incident,
    first_call: Timed,
    rounds: Mapping[str, Sequence[Timed]],
    generated: Sequence[Generated],
) -> dict[str, Any]:
    """Put together what a receipt says about one incident; `rounds` holds the calls by key of READS."""
    single, auto = rounds["first"][-1].decision, rounds["auto"][-1].decision
    right, judged = incident.judge(auto.words)
    spent = {
        kind: {
            **latency([call.ms for call in calls]),
            "server_median_ms": statistics.median(call.decision.timings_ms.total for call in calls),
            "engine_median_ms": statistics.median(call.decision.timings_ms.engine for call in calls),
        }
        for kind, calls in rounds.items()
    }
    answers = {
        name: {
            "answer": answer.word,
            "probabilities": answer.distribution,
            "entropy": answer.entropy,
            "label_mass": answer.label_mass,
            "first_read_probabilities": single.answers[name].distribution,
            "first_read_entropy": single.answers[name].entropy,
        }
        for name, answer in auto.answers.items()
    }
    kept = [reply for reply in generated if reply.outcome != "failed"]
    words = next((reply.words for reply in reversed(kept) if reply.words), None)
    generative = {
        **latency([reply.ms for reply in kept]),
        "outcomes": dict(Counter(reply.outcome for reply in generated)),
        "answer": words,
        "right": incident.judge(words)[0] if words else 0,
    }
    return {
        "id": incident.id,
        "clear": incident.clear,
        "first_call": {"ms": first_call.ms, **first_call.decision.usage.model_dump()},
        "latency": spent,
        "extended_rounds": sum(call.decision.reading.extended for call in rounds["auto"]),
        "extended_by": auto.reading.extended_by,
        "drift": drift([call.decision for call in rounds["auto"]]),
        "answers": answers,
        "right": right,
        "judged": judged,
        "generative": generative if generated else None,
    }


def summarise(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pool the incidents: latencies by kind for clear and ambiguous ones, and the ratios to generation."""

    def pool(rows: Iterable[Mapping[str, Any]], kind: str) -> dict[str, Any]:
        found = latency([ms for row in rows for ms in row["latency"][kind]["ms"]])
        return {"median_ms": found["median_ms"], "p95_ms": found["p95_ms"]}

    summary: dict[str, Any] = {"drift": max(row["drift"] for row in records)}
    for name, clear in (("clear", True), ("ambiguous", False)):
        rows = [row for row in records if row["clear"] is clear]
        summary[name] = {kind: pool(rows, kind) for kind in READS} | {
            "extended_incidents": sum(row["extended_rounds"] > 0 for row in rows),
            "incidents": len(rows),
            "right": sum(row["right"] for row in rows),
            "judged": sum(row["judged"] for row in rows),
        }
    replies = [row["generative"] for row in records if row["generative"] is not None]
    if replies:
        generated = latency([ms for reply in replies for ms in reply["ms"]])["median_ms"]
        outcomes = sum((Counter(reply["outcomes"]) for reply in replies), Counter[str]())
        ratios = {kind: generated / pool(records, kind)["median_ms"] if generated else None for kind in READS}
        summary["generative"] = {
            "median_ms": generated,
            "outcomes": dict(outcomes),
            "ratio": ratios,
            "right": sum(reply["right"] for reply in replies),
        }
    return summary
