"""Send many mutated requests, and see that each is answered: by 2xx, 3xx or 4xx, never 5xx, never not at all.

    python -m benchmarks.mutations --requests 20000 --seed 1 [--url http://127.0.0.1:8080]

Starts `structured-server serve --backend embedded` on a free port unless there is a URL. 504 counts as an
answer to a mutant that asks for a short deadline, and to no other. Ends with 1 where anything was wrong; a
mutant that was answered wrongly is sent again by `--only NUMBER` with the same seed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import click

from benchmarks.mutants import Mutant, mutant

ANSWER_WITHIN_S = 120.0
READY_WITHIN_S = 120.0
SHOWN = 20  # findings

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reply:
    """A response that came whole."""

    status: int
    media_type: str
    body: bytes
    closes: bool


@dataclass(slots=True)
class Report:
    """What became of the mutants: how many had which status, and what should not have happened."""

    statuses: Counter[str] = field(default_factory=Counter)
    by_route: Counter[tuple[str, str]] = field(default_factory=Counter)
    asked_for: int = 0  # statuses from 500 on
    findings: list[tuple[int, str]] = field(default_factory=list)

    def add(self, index: int, sent: Mutant, reply: Reply | None, problem: str) -> None:
        """Count an outcome; with a problem there is no reply."""
        name = str(reply.status) if reply else "none"
        self.statuses[name] += 1
        self.by_route[sent.path, f"{name[0]}xx" if reply else name] += 1
        self.asked_for += reply is not None and reply.status in sent.may
        wrong = problem if reply is None else what_is_wrong(sent, reply)
        if wrong:
            self.findings.append((index, f"{sent.path} {sent.kind}: {wrong}"))


def what_is_wrong(sent: Mutant, reply: Reply) -> str:
    """Return what is wrong with a reply, nothing where it is as it should be."""
    if reply.status >= 500 and reply.status not in sent.may:
        return f"{reply.status} {reply.body[:200]!r}"
    if reply.media_type == "application/json" and not sent.head_only:
        try:
            json.loads(reply.body)
        except ValueError:
            return f"{reply.status} with a body that is not JSON: {reply.body[:200]!r}"
    return ""


async def reply_of(reader: asyncio.StreamReader, *, head_only: bool) -> Reply:
    """Read one response.

    Raises:
        EOFError: the connection ended before the response did.
        OSError: it broke.
    """
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        if status >= 200:
            break
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    closes = headers.get("connection", "").lower() == "close"
    if head_only or status in (204, 304):
        body = b""
    elif headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    else:
        body = await reader.readexactly(int(headers["content-length"]))
    return Reply(status, headers.get("content-type", ""), body, closes)


class Connection:
    """A connection that is kept for as long as the server keeps it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, sent: Mutant) -> Reply:
        """Send a mutant and return what comes back.

        Raises:
            EOFError: the connection ended before the response did.
            OSError: it broke.
            TimeoutError: nothing came for too long.
        """
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=1 << 24)
        reader, writer = self._streams
        writing = asyncio.create_task(_write(writer, sent.wire))
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reply = await reply_of(reader, head_only=sent.head_only)
        except BaseException:
            self.close()
            raise
        finally:
            writing.cancel()
        if reply.closes or sent.damaged:
            self.close()
        return reply

    def close(self) -> None:
        """End it; the next mutant gets a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    try:
        writer.write(data)
        await writer.drain()
    except OSError:  # a server may answer before it has read all; what it says is read elsewhere
        pass


async def run(address: Address, *, seed: int, indices: Iterator[int], connections: int) -> Report:
    """Send the mutants of these numbers over so many connections at a time."""
    report = Report()

    async def send_all() -> None:
        connection = Connection(address)
        for index in indices:
            sent = mutant(seed, index)
            try:
                reply = await connection.exchange(sent)
            except (EOFError, OSError, asyncio.LimitOverrunError) as error:
                report.add(index, sent, None, f"no whole answer: {type(error).__name__}")
            else:
                report.add(index, sent, reply, "")
        connection.close()

    await asyncio.gather(*(send_all() for _ in range(connections)))
    return report


@contextmanager
def embedded_server() -> Iterator[str]:
    """Run the server with the model in the package, and give its URL once it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "structured_server", "serve", "--backend", "embedded"]
    command += ["--port", str(port), "--log-level", "error"]
    process = subprocess.Popen(command)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url)
        yield url
        if process.poll() is not None:
            raise click.ClickException("the server ended meanwhile.")
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(url: str) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        try:
            with urlopen(f"{url}/ready", timeout=5):  # noqa: S310  a URL of our own
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise click.ClickException("the server did not get ready.")


def show(report: Report, *, seed: int, seconds: float) -> None:
    """Print the figures, and the first findings."""
    total = sum(report.statuses.values())
    print(f"{total} requests in {seconds:.0f} s, seed {seed}")
    print("by status:", ", ".join(f"{status} {n}" for status, n in sorted(report.statuses.items())))
    for path in sorted({path for path, _ in report.by_route}):
        ours = sorted((kind, n) for (of, kind), n in report.by_route.items() if of == path)
        print(f"  {path}: {', '.join(f'{kind} {n}' for kind, n in ours)}")
    for index, what in sorted(report.findings)[:SHOWN]:
        print(f"WRONG --seed {seed} --only {index}: {what}")
    print(f"{len(report.findings)} wrong; {report.asked_for} late where a short deadline was asked for")


@click.command()
@click.option("--requests", default=20_000, show_default=True, help="How many to send.")
@click.option("--seed", default=1, show_default=True, help="Which requests those are.")
@click.option("--url", help="A server that runs already.")
@click.option("--connections", default=8, show_default=True, help="How many at a time.")
@click.option("--only", type=int, help="Send the request of this number alone, and print the answer.")
def main(requests: int, seed: int, url: str | None, connections: int, only: int | None) -> None:
    """Send mutated requests to a server, and end with 1 where one was not answered as it should be."""
    if url is None:
        with embedded_server() as own:
            wrong = _measure(own, requests, seed, connections, only)
    else:
        wrong = _measure(url, requests, seed, connections, only)
    sys.exit(1 if wrong else 0)


def _measure(url: str, requests: int, seed: int, connections: int, only: int | None) -> bool:
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 80)
    if only is not None:
        sent = mutant(seed, only)
        print(sent.wire[:4000])
        print(asyncio.run(Connection(address).exchange(sent)))
        return False
    begun = time.monotonic()
    numbers = iter(range(requests))
    report = asyncio.run(run(address, seed=seed, indices=numbers, connections=connections))
    show(report, seed=seed, seconds=time.monotonic() - begun)
    return bool(report.findings)


if __name__ == "__main__":
    main()
