"""An answer of `/decide` as flat columns.

For a question `team`: `team` (the answer in a word, empty unless decided), `team.p` (the probability of yes,
or of the most probable option), `team.score` (a score's mean level), `team.entropy` (nats), `team.stderr`
(the standard error of `.p`, for scores of `.score`; empty with one draw), `team.status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from structured_server.bulk.errors import BadInput

Flat = dict[str, Any]
Questions = Mapping[str, Mapping[str, Any]]

STATUS, ERROR = "_status", "_error"
DECIDED, UNDECIDED, FAILED = "decided", "undecided", "error"
"""What `_status` says: all questions decided or skipped, some undecided, or no answer."""


def columns_of(questions: Questions, prefix: str) -> tuple[str, ...]:
    """Return the names of the added columns."""
    names: list[str] = []
    for name, question in questions.items():
        score = [f"{name}.score"] if question.get("type") == "score" else []
        names += [name, f"{name}.p", *score, f"{name}.entropy", f"{name}.stderr", f"{name}.status"]
    return tuple(prefix + name for name in (*names, STATUS, ERROR))


def refuse_collisions(kept: Sequence[str], added: Sequence[str], prefix: str) -> None:
    """See to it that every column has a name of its own.

    Raises:
        BadInput: two have the same.
    """
    if twice := sorted({name for name in added if added.count(name) > 1}):
        raise BadInput(f"several outputs would be called {', '.join(twice)}: rename the questions.")
    if both := [name for name in added if name in set(kept)]:
        other = f"{prefix}out." if prefix else "out."
        raise BadInput(
            f"the input has columns that the output adds: {', '.join(both)}. "
            f"Give the added ones another beginning, for example --prefix {other}"
        )


def flatten(answer: Mapping[str, Any], questions: Questions, prefix: str) -> Flat:
    """Return an answer's columns. Numbers are as the server sent them."""
    flat: Flat = dict.fromkeys(columns_of(questions, ""))
    for name in questions:
        each = answer["answers"][name]
        flat[f"{name}.status"] = each["status"]
        if each["status"] == "skipped":
            continue
        flat[name] = word_of(each) if each["status"] == DECIDED else None
        flat[f"{name}.p"] = each["noul"] if each["type"] == "noul" else each["top_probability"]
        if each["type"] == "score":
            flat[f"{name}.score"] = each["score"]
        flat[f"{name}.entropy"] = each["entropy"]
        flat[f"{name}.stderr"] = each["noise"]["standard_error"]
    flat[STATUS] = UNDECIDED if answer["undecided"] else DECIDED
    return {prefix + name: value for name, value in flat.items()}


def failed(message: str, questions: Questions, prefix: str) -> Flat:
    """Return the columns of a row without an answer: the message begins with a code and a colon."""
    return dict.fromkeys(columns_of(questions, prefix)) | {prefix + STATUS: FAILED, prefix + ERROR: message}


def word_of(answer: Mapping[str, Any]) -> str:
    """Return a decided answer in a word: yes or no, an option, a level."""
    if answer["type"] == "noul":
        return "yes" if answer["answer"] else "no"
    if answer["type"] == "score":
        return str(answer["legend"][str(answer["answer"])])
    return str(answer["answer"])
