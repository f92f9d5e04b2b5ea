"""A real Prometheus scrapes a server: its rules load, and every query of the dashboard returns data."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.engine.server import free_port
from tests.proxy import Proxy, launch_proxy

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
BINARIES = ROOT / ".cache" / "prometheus" / "usr" / "bin"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text())
METRIC = re.compile(r"structured_server_[a-z0-9_]+")
QUESTIONS = {
    "urgent": {"type": "noul", "instructions": "Should we wake an on-call engineer?"},
    "team": {"type": "choice", "criteria": {"networking": None, "billing": None}},
    "severity": {
        "type": "score",
        "criteria": ["none", "minor", "major", "critical"],
        "abstain": {"min_top_probability": 1},
    },
}

pytestmark = pytest.mark.skipif(
    not (BINARIES / "prometheus").exists(), reason="no Prometheus: run `make prometheus` on Debian"
)


def expressions() -> list[tuple[str, str]]:
    """Return the title and expression of every query of the dashboard, its variables filled in."""
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "10s").replace('"$job"', '"s"'))
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A server with the embedded model and a decision log, one question of which is named."""
    folder = tmp_path_factory.mktemp("server")
    arguments = ["--backend", "embedded", "--metrics-question", "team", "--canary-s", "1"]
    proxy = launch_proxy(folder / "log", [*arguments, "--decision-log", str(folder / "decisions.db")])
    proxy.wait_until(lambda said: said["ready"])
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def prometheus(server: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with our rules that scrapes it every second, and its URL."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(FOLDER / "rules.yml")]
    config["scrape_configs"][0] |= {
        "job_name": "s",
        "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                BINARIES / "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={url.removeprefix('http://')}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    yield url
    process.terminate()
    process.wait(20)


def ask(url: str, expression: str) -> list[dict[str, Any]]:
    """Return what an expression comes to now."""
    reply = httpx.get(f"{url}/api/v1/query", params={"query": expression}, timeout=10)
    assert 200 == reply.status_code, reply.text
    found: list[dict[str, Any]] = reply.json()["data"]["result"]
    return found


def test_every_query_of_the_dashboard_returns_data(server: Proxy, prometheus: str) -> None:
    assert len(expressions()) > 30
    missing = dict.fromkeys(expressions())
    end = time.monotonic() + 40
    number = 0
    while missing and time.monotonic() < end:
        for _ in range(5):
            number += 1
            body = {"state": f"Alert {number}: checkout is slow.", "questions": QUESTIONS}
            assert 200 == server.decide(body).status_code
        time.sleep(0.5)
        if httpx.get(f"{prometheus}/-/ready", timeout=5, follow_redirects=True).status_code == 200:
            missing = {each: None for each in missing if not ask(prometheus, each[1])}
    assert [] == list(missing)


def test_the_rules_are_loaded_and_evaluated_without_an_error(prometheus: str) -> None:
    end = time.monotonic() + 20
    rules: list[dict[str, Any]] = []
    while time.monotonic() < end and not (rules and all(rule["health"] == "ok" for rule in rules)):
        time.sleep(0.5)
        groups = httpx.get(f"{prometheus}/api/v1/rules", timeout=10).json()["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
    assert {"ok"} == {rule["health"] for rule in rules}
    written = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    assert sum(len(group["rules"]) for group in written) == len(rules)
    (value,) = ask(prometheus, "job:structured_server_slow:ratio_rate5m")
    assert 0 <= float(value["value"][1]) <= 1


def test_promtool_finds_nothing_wrong_with_the_metrics_of_a_live_server(server: Proxy) -> None:
    text = server.get("/metrics").content
    done = subprocess.run([BINARIES / "promtool", "check", "metrics"], input=text, capture_output=True)
    assert (0, b"") == (done.returncode, done.stderr), done.stderr.decode()


def test_what_rules_dashboard_and_alerts_name_is_there_and_documented(server: Proxy) -> None:
    names = {
        line.split()[2] for line in server.get("/metrics").text.splitlines() if line.startswith("# TYPE ")
    }
    suffixes = ("", "_bucket", "_sum", "_count")
    there = {name + suffix for name in names for suffix in suffixes} | {
        # Only where there are several engines, or files to be watched.
        "structured_server_upstream_breaker",
        "structured_server_file_error",
    }
    # Recorded series have a colon before and behind their names.
    for file in (FOLDER / "rules.yml", ROOT / "deploy" / "grafana" / "dashboard.json"):
        text = re.sub(r"job:structured_server_\w+:\w+", "", file.read_text())
        assert set() == set(METRIC.findall(text)) - there, file
    table = (ROOT / "docs" / "operations.md").read_text()
    undocumented = [name for name in names if f"`{name.removeprefix('structured_server_')}`" not in table]
    assert [] == undocumented


def test_every_alert_has_its_section_and_its_tests() -> None:
    rules = yaml.safe_load((FOLDER / "rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    headings = {
        line.removeprefix("## ").lower().replace(" ", "-")
        for line in (ROOT / "docs" / "alerts.md").read_text().splitlines()
        if line.startswith("## ")
    }
    assert headings == {alert["annotations"]["runbook"].partition("#")[2] for alert in alerts}
    tests = "".join((FOLDER / name).read_text() for name in ("rules_test.yml", "rules_slow_test.yml"))
    for alert in alerts:
        assert f"{alert['alert']} fires" in tests
        assert f"{alert['alert']} is silent" in tests


def test_a_rule_that_is_wrong_is_refused(tmp_path: Path) -> None:
    wrong = (FOLDER / "rules.yml").read_text().replace("sum by (job)", "sum by (job", 1)
    (tmp_path / "rules.yml").write_text(wrong)
    command = [str(BINARIES / "promtool"), "check", "rules", str(tmp_path / "rules.yml")]
    assert 0 != subprocess.run(command, capture_output=True).returncode
