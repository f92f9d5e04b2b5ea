"""Measure incident triage on a running server: one read, four reads, the automatic choice, generation.

What may live here: the HTTP clients, the clock, the files, the command. Figures and tables live next door.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx
import yaml
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

if not __package__:  # run as a file: its neighbours are found from the top of the repository
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.incident_figures import (
    READS,
    Decision,
    Generated,
    Incident,
    Questions,
    Timed,
    generation_prompt,
    parse_generated,
    record,
    summarise,
)
from benchmarks.incident_tables import conclusions, tables

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "incident_triage"
GENERATED_TOKENS = 64  # twice what the answer needs, in one canvas; random weights never stop by themselves
TIMEOUT_S = 120.0
EXAMPLE_CALLS = """\b
Examples:
  python benchmarks/incident_triage.py --url http://127.0.0.1:8080
  python benchmarks/incident_triage.py --url http://127.0.0.1:8080 \\
      --generative --engine-url http://127.0.0.1:8000 --out receipt.json
  STRUCTURED_SERVER_TOKEN=$(gcloud auth print-identity-token) \\
      python benchmarks/incident_triage.py --url https://SERVICE.run.app --hardware "one L4"
"""
SHOWN = 500  # characters of a foreign body that are worth showing


class BenchmarkFailed(click.ClickException):
    """The measurement cannot go on; the message says why. Exit code 1."""


class NotReady(BenchmarkFailed):
    """The server does not take decisions now. Exit code 5."""

    exit_code = 5


class Server:
    """Asks POST /decide the same questions about one incident after another."""

    def __init__(self, http: httpx.Client, model: str | None, questions: Questions) -> None:
        self._http = http
        self._fixed = {"questions": questions} | ({"model": model} if model else {})
        self._questions = questions

    def require_ready(self) -> None:
        """Ask GET /ready.

        Raises:
            NotReady: nothing listens, or the answer is not 200; the message holds what it says.
        """
        with _named_failures("GET /ready", NotReady):
            response = self._http.get("/ready")
        if response.status_code != 200:
            raise NotReady(f"not ready: GET /ready says {response.status_code}\n{_readable(response)}")

    def decide(self, incident: Incident, samples: int | str) -> Timed:
        """Decide on one incident with a number of draws, or "auto".

        Raises:
            NotReady: the server says that it is loading.
            BenchmarkFailed: any other answer than a decision on the questions asked.
        """
        body = self._fixed | {"state": incident.state, "read": {"samples": samples}}
        with _named_failures("POST /decide", BenchmarkFailed):
            start = time.perf_counter()
            response = self._http.post("/decide", json=body)
            ms = (time.perf_counter() - start) * 1000
        if response.status_code != 200:
            kind = NotReady if _error_code(response) == "loading" else BenchmarkFailed
            raise kind(f"{incident.id}: POST /decide says {response.status_code}\n{_readable(response)}")
        try:
            decision = Decision.model_validate_json(response.content)
        except ValidationError as error:
            raise BenchmarkFailed(
                f"{incident.id}: POST /decide did not answer a decision: {error}"
            ) from error
        if not decision.answers_all(self._questions):
            raise BenchmarkFailed(f"{incident.id}: POST /decide answered other questions than it was asked")
        return Timed(ms, decision)


class Engine:
    """Asks the engine itself: its version, and the same answers by plain generation."""

    def __init__(self, http: httpx.Client, model: str | None, questions: Questions) -> None:
        self._http = http
        self._questions = questions
        self._system = {"role": "system", "content": generation_prompt(questions)}
        self._fixed: dict[str, Any] = {"max_tokens": GENERATED_TOKENS} | ({"model": model} if model else {})

    def version(self) -> str | None:
        """Return what GET /version says; None where it says nothing."""
        try:
            version = self._http.get("/version").raise_for_status().json()["version"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None
        return str(version)

    def generate(self, incident: Incident) -> Generated:
        """Have the answer written token by token, and parse it; a failed call is an outcome, not an error."""
        user = {"role": "user", "content": json.dumps(incident.state, ensure_ascii=False)}
        start = time.perf_counter()
        try:
            response = self._http.post(
                "/v1/chat/completions", json=self._fixed | {"messages": [self._system, user]}
            )
            ms = (time.perf_counter() - start) * 1000
            content = response.raise_for_status().json()["choices"][0]["message"]["content"]
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return Generated((time.perf_counter() - start) * 1000, "failed")
        outcome, words = parse_generated(str(content or ""), self._questions)
        return Generated(ms, outcome, words)


def load_examples(folder: Path = EXAMPLES) -> tuple[Questions, list[Incident]]:
    """Read the questions and the incidents."""
    questions = yaml.safe_load((folder / "questions.yaml").read_text(encoding="utf-8"))
    incidents = yaml.safe_load((folder / "incidents.yaml").read_text(encoding="utf-8"))
    return questions, TypeAdapter(list[Incident]).validate_python(incidents)


def measure(
    server: Server, engine: Engine | None, incidents: Sequence[Incident], rounds: int
) -> tuple[list[dict[str, Any]], Decision]:
    """Time every kind of call on every incident, one at a time; return the records and the last decision.

    The first call on an incident meets a prompt that no cache holds and is kept apart. A round goes over all
    incidents and kinds, so that a slow minute touches each of them; round 0 warms up and is dropped.
    """
    first_calls = {incident.id: server.decide(incident, 1) for incident in incidents}
    timed: dict[str, dict[str, list[Timed]]] = {i.id: {kind: [] for kind in READS} for i in incidents}
    generated: dict[str, list[Generated]] = {incident.id: [] for incident in incidents}
    for number in range(rounds + 1):
        click.echo(f"round {number} of {rounds}" if number else "warming up", err=True)
        for incident in incidents:
            calls = {kind: server.decide(incident, samples) for kind, samples in READS.items()}
            replies = [engine.generate(incident)] if engine else []
            if number:
                generated[incident.id] += replies
                for kind, call in calls.items():
                    timed[incident.id][kind].append(call)
    records = [record(i, first_calls[i.id], timed[i.id], generated[i.id]) for i in incidents]
    return records, timed[incidents[-1].id]["auto"][-1].decision


def _base_url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Accept http(s)://host[:port][/path]; a receipt repeats it, so it must not hold a password."""
    if value is None:
        return None
    try:
        url = httpx.URL(value)
    except httpx.InvalidURL as error:
        raise click.BadParameter(str(error)) from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise click.BadParameter("want http://HOST:PORT or https://HOST, without a user or password")
    return value.rstrip("/")


@contextmanager
def _named_failures(call: str, kind: type[BenchmarkFailed]) -> Iterator[None]:
    """Turn what httpx raises during a call into an error that names it."""
    try:
        yield
    except httpx.HTTPError as error:
        raise kind(f"{call} got no answer: {type(error).__name__}: {error}") from error


def _error_code(response: httpx.Response) -> str | None:
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, LookupError, TypeError):
        return None


def _readable(response: httpx.Response) -> str:
    try:
        return json.dumps(response.json(), indent=2, ensure_ascii=False)
    except ValueError:
        return response.text[:SHOWN]


@click.command(epilog=EXAMPLE_CALLS)
@click.option("--url", required=True, callback=_base_url, help="The server that answers POST /decide.")
@click.option("--model", help="The model to name in requests; none by default.")
@click.option("--rounds", type=click.IntRange(min=1), default=10, show_default=True, help="Measured rounds.")
@click.option("--generative", is_flag=True, help="Also time plain generation; needs --engine-url.")
@click.option("--engine-url", callback=_base_url, help="The engine, for its version and --generative.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the receipt here, as JSON."
)
@click.option(
    "--token", envvar="STRUCTURED_SERVER_TOKEN", show_envvar=True, help="Bearer token for --url only."
)
@click.option("--hardware", help="What the engine runs on, in your words; copied into the receipt.")
@click.pass_obj
def main(
    transport: httpx.BaseTransport | None,
    *,
    url: str,
    model: str | None,
    rounds: int,
    generative: bool,
    engine_url: str | None,
    out: Path | None,
    token: str | None,
    hardware: str | None,
) -> None:
    """Measure the eight incidents of examples/incident_triage on a running server.

    Exit codes: 0 measured, 1 a call failed, 2 wrong usage, 5 the server is not ready.
    """
    if generative and engine_url is None:
        raise click.UsageError("--generative needs --engine-url: generation is asked of the engine itself")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    questions, incidents = load_examples()
    started, start = datetime.now(UTC), time.perf_counter()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with (
        httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport) as server_http,
        httpx.Client(base_url=engine_url or "", timeout=TIMEOUT_S, transport=transport) as engine_http,
    ):
        server = Server(server_http, model, questions)
        engine = Engine(engine_http, model, questions) if engine_url else None
        server.require_ready()
        engine_version = engine.version() if engine else None
        records, last = measure(server, engine if generative else None, incidents, rounds)
    receipt: dict[str, Any] = {
        "benchmark": "incident_triage",
        "started_at": started.isoformat(timespec="seconds"),
        "seconds": time.perf_counter() - start,
        "versions": {**last.provenance, "engine": engine_version, "python": platform.python_version()},
        "machine": {"platform": platform.platform(), "cpus": os.cpu_count(), "hardware_of_engine": hardware},
        "settings": {
            "url": url,
            "model": last.model,
            "rounds": rounds,
            "reads": dict(READS),
            "generative": {"engine_url": engine_url, "max_tokens": GENERATED_TOKENS} if generative else None,
        },
        "summary": summarise(records),
        "incidents": records,
    }
    console = Console(width=None if sys.stdout.isatty() else 130)
    for table in tables(receipt):
        console.print(table)
    for line in conclusions(receipt["summary"]):
        console.print(line, markup=False, highlight=False)
    if out is not None:
        out.write_text(json.dumps(receipt, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        console.print(f"receipt: {out}", markup=False)


if __name__ == "__main__":
    main()
