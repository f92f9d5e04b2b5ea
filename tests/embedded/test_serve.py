"""`structured-server serve --backend embedded` as a process."""

from __future__ import annotations

import json
from pathlib import Path

from tests.golden.requests import TRIAGE
from tests.proxy import launch_proxy


def test_it_gets_ready_decides_and_drains_with_nothing_but_log_lines_on_standard_error(
    tmp_path: Path,
) -> None:
    proxy = launch_proxy(tmp_path / "log", ["--backend", "embedded", "--allow-demo-model"])
    try:
        proxy.wait_until(lambda said: said["ready"])
        reply = proxy.decide({"state": "502 spike on checkout", "questions": TRIAGE})
        assert (200, "triage-demo") == (reply.status_code, reply.json()["model"])
    finally:
        status = proxy.stop()
    assert 0 == status
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert "ready" in [line["message"] for line in lines]
