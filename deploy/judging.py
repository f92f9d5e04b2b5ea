"""Judging a running server from outside: whether it is ready, and whether it answers what is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

EXAMPLE = Path(__file__).parents[1] / "examples" / "incident_triage"
POLL_S = 10.0
LEAST_RIGHT = 0.75
"""Of the known answers: one answer in four may be arguable, a broken engine misses nearly all."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server to be judged. The token goes into a header and nowhere else."""

    url: str
    token: Callable[[], str] | None = (
        None  # asked anew each time: it lives for an hour, a load may take as long
    )
    key: str = ""

    def get(self, path: str) -> httpx.Response:
        """Send a GET."""
        return httpx.get(self.url + path, headers=self._headers(), timeout=60)

    def decide(self, body: dict[str, Any]) -> httpx.Response:
        """Send a decision."""
        return httpx.post(f"{self.url}/decide", json=body, headers=self._headers(), timeout=60)

    def _headers(self) -> dict[str, str]:
        headers = {"X-Serverless-Authorization": f"Bearer {self.token()}"} if self.token else {}
        return headers | ({"Authorization": f"Bearer {self.key}"} if self.key else {})


def wait_until_ready(server: Server, limit_s: float, say: Callable[[str], None], poll_s: float) -> str | None:
    """Wait until it is ready, saying what it waits for. Return what is wrong, None if it became ready."""
    end, told = time.monotonic() + limit_s, ""
    while True:
        now = _standing(server)
        if now is None:
            return None
        if now != told:
            say(f"not ready: {now}")
            told = now
        if time.monotonic() > end:
            return f"it was not ready after {limit_s:.0f} s: {now}"
        time.sleep(poll_s)


def _standing(server: Server) -> str | None:
    try:
        reply = server.get("/ready")
    except httpx.TransportError as error:
        return f"no connection ({type(error).__name__})"
    if reply.status_code == 200:
        return None
    try:
        said = reply.json()
        return f"{said.get('step')}: {said.get('problem') or said.get('waits_for') or ''}".rstrip(": ")
    except (ValueError, AttributeError):
        hint = {
            401: ": the identity token is not taken, or an API key is missing",
            403: ": whoever is logged in lacks roles/run.invoker",
            404: ": there is no such revision or path",
        }.get(reply.status_code, "")
        return f"status {reply.status_code}{hint}"


def smoke(server: Server) -> Iterator[str]:
    """Yield what is wrong with its answers about the clear incidents of the example; nothing if they hold."""
    questions = yaml.safe_load((EXAMPLE / "questions.yaml").read_text(encoding="utf-8"))
    incidents = yaml.safe_load((EXAMPLE / "incidents.yaml").read_text(encoding="utf-8"))
    clear = [each for each in incidents if each["clear"]]
    right = asked = 0
    for incident in clear:
        state = f"{incident['title']}\n\n{incident['text']}"
        reply = server.decide({"state": state, "questions": questions})
        if reply.status_code != 200:
            yield f"{incident['id']}: status {reply.status_code}"
            continue
        answers = reply.json()["answers"]
        wrong = sum(
            answers[name]["label_mass"] is not None and answers[name]["label_mass"] < 0.5 for name in answers
        )
        if wrong:
            yield f"{incident['id']}: the model's probability lies beside the labels for {wrong} questions"
        for name, expected in incident["expected"].items():
            asked += 1
            right += _said(answers[name]) == expected
    if asked and right < LEAST_RIGHT * asked:
        yield f"{right} of {asked} known answers are right, {LEAST_RIGHT:.0%} are wanted"


def _said(answer: dict[str, Any]) -> str | None:
    if answer["type"] == "noul":
        return {True: "yes", False: "no"}.get(answer["answer"])
    if answer["type"] == "score":
        level = answer.get("level")
        return None if level is None else str(answer["legend"][str(level)])
    return None if answer["answer"] is None else str(answer["answer"])
