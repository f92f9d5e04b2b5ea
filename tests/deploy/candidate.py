"""A server that is judged before it serves: not ready for a while, and then right or wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

import yaml

from deploy.judging import EXAMPLE
from tests.deploy.local import listening

EXPECTED = {
    each["title"]: each["expected"]
    for each in yaml.safe_load((EXAMPLE / "incidents.yaml").read_text())
    if each["clear"]
}
LEVELS = ["none", "minor", "major", "critical"]


class Candidate(BaseHTTPRequestHandler):
    """A revision: not ready for a while, and then right or wrong."""

    not_ready: ClassVar[int] = 1  # times that /ready is 503
    right: ClassVar[bool] = True
    mass: ClassVar[float] = 0.99
    seen: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append(dict(self.headers))
        if self.path == "/ready" and Candidate.not_ready > 0:
            Candidate.not_ready -= 1
            self._say(503, {"ready": False, "step": "engine", "waits_for": "the engine", "problem": None})
        else:
            self._say(200, {"ready": True})

    def do_POST(self) -> None:
        self.seen.append(dict(self.headers))
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        expected = EXPECTED[asked["state"].partition("\n")[0]]
        wrong = not self.right
        shared = {"label_mass": self.mass}
        level = LEVELS.index(expected["severity"])
        answers = {
            "urgent": {"type": "noul", "answer": (expected["urgent"] == "yes") != wrong, **shared},
            "team": {"type": "choice", "answer": "nobody" if wrong else expected["team"], **shared},
            "severity": {
                "type": "score",
                "answer": float(level),
                "level": 3 - level if wrong else level,
                "legend": {str(number): name for number, name in enumerate(LEVELS)},
                **shared,
            },
        }
        self._say(200, {"answers": answers})

    def _say(self, status: int, body: dict[str, Any]) -> None:
        written = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def candidate() -> Iterator[str]:
    """Serve it, and give its URL."""
    Candidate.not_ready, Candidate.right, Candidate.mass, Candidate.seen = 1, True, 0.99, []
    with listening(Candidate) as place:
        yield f"http://{place}"
