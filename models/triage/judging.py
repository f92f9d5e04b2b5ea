"""The figures of an evaluation: measures, the gate's conditions, the page. Nothing here runs a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import texts
from texts import Example

from structured_server.core.distribution import entropy

CLEAR_MAY_EXTEND = 0.20
"""Of the validation's clear texts; a margin below the 25 % that the gate allows."""

_TYPES = {"urgent": "noul", "team": "choice", "severity": "score"}

Reading = dict[str, tuple[float, ...]]  # question -> probabilities over its options


@dataclass(frozen=True)
class Read:
    """A text with its first draw and the mean of four."""

    example: Example
    first: Reading
    pooled: Reading


def normalized_entropy(probabilities: Sequence[float]) -> float:
    """Return entropy over ln K."""
    return entropy(probabilities) / math.log(len(probabilities))


def tempered(probabilities: Sequence[float], temperature: float) -> tuple[float, ...]:
    """Divide the log-probabilities by a temperature."""
    weights = [max(p, 1e-12) ** (1 / temperature) for p in probabilities]
    return tuple(weight / math.fsum(weights) for weight in weights)


def log_loss(pairs: Sequence[tuple[Sequence[float], int]]) -> float:
    """Return the mean negative log-probability of the labels, in nats."""
    return -math.fsum(math.log(max(p[answer], 1e-12)) for p, answer in pairs) / len(pairs)


def calibration_error(pairs: Sequence[tuple[Sequence[float], int]], bins: int = 5) -> float:
    """Return the expected calibration error of the top probability over bins of equal mass."""
    ranked = sorted((max(p), p.index(max(p)) == answer) for p, answer in ((tuple(p), a) for p, a in pairs))
    total = 0.0
    for chunk in np.array_split(np.array(ranked, float), bins):
        total += len(chunk) / len(ranked) * abs(chunk[:, 0].mean() - chunk[:, 1].mean())
    return float(total)


def bootstrap(
    measure: Callable[[Sequence[tuple[Sequence[float], int]]], float],
    pairs: Sequence[tuple[Sequence[float], int]],
    *,
    rounds: int = 1000,
) -> tuple[float, float]:
    """Return the central 95 % of a measure over resampled texts."""
    choose = np.random.default_rng(0)
    values = [measure([pairs[i] for i in choose.integers(0, len(pairs), len(pairs))]) for _ in range(rounds)]
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def wilson(right: int, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    z, p = 1.959963984540054, right / count
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return middle - half, middle + half


def pairs_of(
    reads: Sequence[Read], question: str, *, pooled: bool = True
) -> list[tuple[Sequence[float], int]]:
    """Return (probabilities, label) of a question."""
    return [((r.pooled if pooled else r.first)[question], r.example.answer(question)) for r in reads]


def fit_temperature(reads: Sequence[Read], question: str) -> float:
    """Return the one temperature with the least log loss."""
    pairs = pairs_of(reads, question)
    candidates = np.exp(np.linspace(math.log(0.5), math.log(4), 211))
    losses = [log_loss([(tempered(p, t), answer) for p, answer in pairs]) for t in candidates]
    return float(candidates[int(np.argmin(losses))])


def extension_share(reads: Sequence[Read], thresholds: Mapping[str, float]) -> float:
    """Return the share of texts on which the first draw of any question is above its threshold, in nats."""
    return sum(any(entropy(p) > thresholds[q] for q, p in r.first.items()) for r in reads) / len(reads)


def choose_thresholds(clear: Sequence[Read], ambiguous: Sequence[Read]) -> dict[str, float]:
    """Return the thresholds, by question, that make most ambiguous texts extend and few clear ones.

    Among thresholds at which at most `CLEAR_MAY_EXTEND` of the clear texts do. Candidates are quantiles of
    the clear texts' entropies; the last one of each question lets nothing extend.
    """
    names = list(texts.GATED)
    low, high = (
        np.array([[entropy(r.first[name]) for name in names] for r in reads]) for reads in (clear, ambiguous)
    )
    levels = np.linspace(0.78, 1, 23)
    candidates = [np.quantile(low[:, i], levels) + 0.0005 for i in range(len(names))]
    for i, name in enumerate(names):
        candidates[i][-1] = math.log(len(texts.OPTIONS[name]))
    best, chosen = (-1.0, 0.0), (0.0,) * len(names)
    for thresholds in product(*candidates):
        of_clear = float((low > thresholds).any(axis=1).mean())
        if of_clear <= CLEAR_MAY_EXTEND:
            found = (float((high > thresholds).any(axis=1).mean()), -of_clear)
            if found > best:
                best, chosen = found, thresholds
    return {name: round(float(value), 3) for name, value in zip(names, chosen, strict=True)}


def judge(valid: Sequence[Read], judged: Sequence[Read]) -> dict[str, Any]:
    """Judge the gate's reads with what the validation's reads choose, and return every figure."""
    parts = {
        name: {
            "clear": [r for r in reads if r.example.has_cue and r.example.is_clear],
            "ambiguous": [r for r in reads if r.example.has_cue and not r.example.is_clear],
            "no cue": [r for r in reads if not r.example.has_cue],
        }
        for name, reads in (("validation", valid), ("gate", judged))
    }
    thresholds = choose_thresholds(parts["validation"]["clear"], parts["validation"]["ambiguous"])
    clear = parts["gate"]["clear"]
    questions = {}
    for question in texts.GATED:
        pairs = pairs_of(clear, question)
        right = sum(p.index(max(p)) == answer for p, answer in ((tuple(p), a) for p, a in pairs))
        labels = [answer for _, answer in pairs]
        shares = [labels.count(i) / len(labels) for i in range(len(texts.OPTIONS[question]))]
        prior = -sum(share * math.log(share) for share in shares if share)
        temperature = fit_temperature(parts["validation"]["clear"], question)
        cooled = [(tempered(p, temperature), answer) for p, answer in pairs]
        questions[question] = {
            "accuracy": right / len(pairs),
            "accuracy_interval_95": wilson(right, len(pairs)),
            "majority": max(shares),
            "log_loss": log_loss(pairs),
            "log_loss_of_prior": prior,
            "ece": calibration_error(pairs),
            "ece_interval_95": bootstrap(calibration_error, pairs),
            "temperature": temperature,
            "ece_tempered": calibration_error(cooled),
            "ece_tempered_interval_95": bootstrap(calibration_error, cooled),
            "normalized_entropy": {
                part: math.fsum(normalized_entropy(r.pooled[question]) for r in reads) / len(reads)
                for part, reads in parts["gate"].items()
            },
        }
    silent = parts["gate"]["no cue"]
    return {
        "texts": {name: {part: len(reads) for part, reads in each.items()} for name, each in parts.items()},
        "questions": questions,
        "entropy_thresholds": thresholds,
        "extension": {
            name: {part: extension_share(reads, thresholds) for part, reads in each.items()}
            for name, each in parts.items()
        },
        "no_cue_normalized_entropy": math.fsum(
            normalized_entropy(r.pooled[q]) for r in silent for q in texts.GATED
        )
        / (len(silent) * len(texts.GATED)),
    }


def gate(figures: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Return each condition of the gate: what, wanted, found, whether it holds."""
    questions, extension = figures["questions"], figures["extension"]["gate"]
    severity = questions["severity"]
    wanted_severity = severity["majority"] + 0.30

    def accuracy(question: str, least: float) -> tuple[str, str, str, bool]:
        found, (low, high) = questions[question]["accuracy"], questions[question]["accuracy_interval_95"]
        return (
            f"{question}: accuracy",
            f"at least {least:.3f}",
            f"{found:.3f} ({low:.3f} to {high:.3f})",
            found >= least,
        )

    rows = [accuracy("team", 0.88), accuracy("urgent", 0.85), accuracy("severity", wanted_severity)]
    for question in texts.GATED:
        found = questions[question]
        least = 0.8 * found["log_loss_of_prior"]
        rows.append(
            (
                f"{question}: log loss",
                f"at most {least:.3f} (prior {found['log_loss_of_prior']:.3f} less 20 %)",
                f"{found['log_loss']:.3f}",
                found["log_loss"] <= least,
            )
        )
    silent = figures["no_cue_normalized_entropy"]
    rows.append(("no cue: mean normalised entropy", "at least 0.600", f"{silent:.3f}", silent >= 0.6))
    rows.append(
        ("clear texts that extend", "at most 25 %", f"{extension['clear']:.1%}", extension["clear"] <= 0.25)
    )
    rows.append(
        (
            "ambiguous texts that extend",
            "at least 60 %",
            f"{extension['ambiguous']:.1%}",
            extension["ambiguous"] >= 0.6,
        )
    )
    return rows


def report(figures: Mapping[str, Any]) -> str:
    """Return the evaluation as a page of Markdown."""
    counts = figures["texts"]["gate"]
    lines = [
        "# Evaluation of the embedded model",
        "",
        f"Written by `evaluate.py` from {counts['clear']} clear and {counts['ambiguous']} ambiguous texts "
        f"and {counts['no cue']} without a cue, none of which was trained on. Four draws are averaged;",
        "extension looks at the first.",
        "",
        "| condition | wanted | found | holds |",
        "|---|---|---|---|",
        *(
            f"| {what} | {wanted} | {found} | {'yes' if holds else '**no**'} |"
            for what, wanted, found, holds in gate(figures)
        ),
        "",
        "| question | ECE | after one temperature | temperature | entropy clear / ambiguous / no cue |",
        "|---|---|---|---|---|",
    ]
    for question, found in figures["questions"].items():
        before, after = (
            f"{found[key]:.3f} ({found[f'{key}_interval_95'][0]:.3f} to {found[f'{key}_interval_95'][1]:.3f})"
            for key in ("ece", "ece_tempered")
        )
        entropies = " / ".join(f"{value:.2f}" for value in found["normalized_entropy"].values())
        lines.append(f"| {question} | {before} | {after} | {found['temperature']:.2f} | {entropies} |")
    lines += [
        "",
        "ECE: five bins of equal mass, bootstrap interval of 95 %. The temperature is fitted on",
        "validation texts; it is shipped, and applied to each draw. Entropies are normalised means.",
        "",
        "Entropy thresholds, chosen on validation: "
        + ", ".join(f"{name} **{value} nats**" for name, value in figures["entropy_thresholds"].items())
        + ". Texts above one:",
        "",
        "| texts | clear | ambiguous | no cue |",
        "|---|---|---|---|",
        *(
            f"| {name} | {each['clear']:.1%} | {each['ambiguous']:.1%} | {each['no cue']:.1%} |"
            for name, each in figures["extension"].items()
        ),
        "",
    ]
    return "\n".join(lines)


def describe(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the package says of the model; with a notice where the gate was missed."""
    rows = gate(figures)
    nouls = [name for name, options in texts.OPTIONS.items() if options == texts.YES_NO]
    described: dict[str, Any] = {
        "name": "triage-demo",
        "temperatures": {
            _TYPES[name]: round(found["temperature"], 2) for name, found in figures["questions"].items()
        },
        "entropy_thresholds": {
            _TYPES[name]: threshold for name, threshold in figures["entropy_thresholds"].items()
        },
        "domain": {
            "noul": nouls,
            "choice": [list(texts.OPTIONS["team"]), list(texts.OPTIONS["sentiment"])],
            "score": [list(texts.OPTIONS["severity"])],
        },
        "gate": {
            what: {"wanted": wanted, "found": found, "holds": holds} for what, wanted, found, holds in rows
        },
    }
    missed = [f"{what} {found}, wanted {wanted}" for what, wanted, found, holds in rows if not holds]
    if missed:
        described["notice"] = (
            f"The embedded model is a demonstration that missed its own quality gate ({'; '.join(missed)}): "
            "do not act on its answers."
        )
    return described
