"""The questions the model is taught, in several wordings each, as the server's own values.

The model answers questions of its domain only. It learns these in many wordings, orders and layouts, so that
a caller need not copy one of them word by word.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from structured_server.core.questions import Choice, Noul, Question, Schema, Score

Random = random.Random

_EXAMPLE = yaml.safe_load(
    (Path(__file__).parents[2] / "examples" / "incident_triage" / "questions.yaml").read_text("utf-8")
)


def _example(name: str, part: Callable[[Any], Any]) -> Any:
    """Return a part of a question as the incident example words it."""
    return part(_EXAMPLE[name])


_URGENT = (
    "Should we wake an on-call engineer?",
    "Is this urgent?",
    "Must someone act right now?",
    "Does this have to be handled at once?",
    "Is it urgent?",
    "Does somebody have to work on this immediately, day or night?",
    "Page the on-call engineer?",
    "Can this not wait until the morning?",
)
_URGENT_CRITERIA = (
    ("customers are hurt now, or waiting makes it clearly worse", "it can wait until morning"),
    ("customers are affected now", "it can wait until morning"),
    ("waiting would do harm", "nothing is lost by waiting, or it is over"),
    _example("urgent", lambda asked: (asked["criteria"]["true"], asked["criteria"]["false"])),
)
_TEAM = (
    "Which team owns the incident?",
    "Which team should handle this?",
    "Who is responsible?",
    "Which team owns it?",
    "Route this to a team.",
    "Which team does this belong to?",
    "team",
    _example("team", lambda asked: asked["instructions"]),
)
_TEAM_CRITERIA = (
    _example("team", lambda asked: asked["criteria"]),
    {
        "compute": "machines, containers, deployments, memory, processes",
        "networking": "DNS, routing, load balancers, connections, certificates",
        "security": "attacks, credentials, permissions, malware",
        "storage": "disks, databases, files, backups",
        "billing": "invoices, payments, prices, refunds",
    },
    {
        "compute": "servers, VMs, pods, CPU and memory",
        "networking": "network, DNS, VPN, latency, CDN",
        "security": "attacks, leaked credentials, WAF policy, access",
        "storage": "volumes, buckets, databases and their data",
        "billing": "charges, invoices, subscriptions, budgets",
    },
)
_SEVERITY_MEANINGS = (
    "none: nobody is affected. minor: few people or a nuisance. major: many people or an important function. "
    "critical: everything is down, data is lost, an attack succeeds, or money goes wrong for everyone.",
    "None means that nobody is affected, minor a few people or a nuisance, major many people or an important "
    "function, critical that all is down, data is being lost or an attack is succeeding.",
)
_SEVERITY = (
    "How severe is customer impact?",
    "How severe is the impact?",
    "How bad is it?",
    "severity",
    "What is the impact level?",
    "How severe is it for customers?",
)
_SEVERITY_EXPLAINED = _example("severity", lambda asked: asked["instructions"].strip())
_IMPACT = (
    "Are customers affected now?",
    "Does this hurt customers at the moment?",
    "Is there customer impact?",
    "Do customers notice it?",
)
_SENTIMENT = (
    "What is the writer's mood?",
    "How does the writer feel?",
    "sentiment",
    "In which mood is this written?",
)
_ROLLBACK = (
    "Should a recent change be rolled back?",
    "Is a recent release or change to blame and to be undone?",
    "Does this need a rollback?",
)


def _urgent(choose: Random) -> Question:
    yes, no = choose.choice(_URGENT_CRITERIA) if choose.random() < 0.5 else (None, None)
    return Noul(choose.choice(_URGENT), yes, no)


def _team(choose: Random) -> Question:
    described = choose.choice(_TEAM_CRITERIA)
    kind = choose.random()
    names = list(described)
    if choose.random() < 0.3:
        choose.shuffle(names)
    kept = {name: kind < 0.35 or (kind < 0.55 and choose.random() < 0.4) for name in names}
    criteria = tuple((name, described[name] if kept[name] else None) for name in names)
    return Choice(choose.choice(_TEAM), criteria)


def _severity(choose: Random) -> Question:
    asked = choose.choice(_SEVERITY)
    kind = choose.random()
    if kind < 0.45:
        asked = f"{asked} {choose.choice(_SEVERITY_MEANINGS)}"
    elif kind < 0.7:
        asked = _SEVERITY_EXPLAINED
    return Score(asked, ("none", "minor", "major", "critical"))


def _sentiment(choose: Random) -> Question:
    names = ["calm", "worried", "angry"]
    if choose.random() < 0.3:
        choose.shuffle(names)
    return Choice(choose.choice(_SENTIMENT), tuple((name, None) for name in names))


_MAKERS: dict[str, Callable[[Random], Question]] = {
    "urgent": _urgent,
    "team": _team,
    "severity": _severity,
    "customer_impact": lambda choose: Noul(choose.choice(_IMPACT)),
    "sentiment": _sentiment,
    "needs_rollback": lambda choose: Noul(choose.choice(_ROLLBACK)),
}
NAMES = tuple(_MAKERS)


def make_schema(choose: Random, names: list[str]) -> Schema:
    """Return the named questions in some wording, in the order given."""
    return Schema(tuple((name, _MAKERS[name](choose)) for name in names))


def standard_schema() -> Schema:
    """Return the three gated questions as the incident example asks them; the gate is read with these."""
    urgent, team, severity = (_EXAMPLE[name] for name in ("urgent", "team", "severity"))
    return Schema(
        (
            ("urgent", Noul(urgent["instructions"], urgent["criteria"]["true"], urgent["criteria"]["false"])),
            ("team", Choice(team["instructions"], tuple(team["criteria"].items()))),
            ("severity", Score(severity["instructions"], tuple(severity["criteria"]))),
        )
    )
