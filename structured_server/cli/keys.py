"""`structured-server keys`: makes API keys, and checks the file that a server knows them by."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from pathlib import Path

import click

from structured_server.cli.exits import BAD_INPUT, WARNINGS, Refused
from structured_server.errors import SettingsError

SHOWN = 8  # hexadecimal digits that tell two keys of one name apart

_EPILOG = """\b
Examples:
  structured-server keys new triage --requests-per-minute 600 --expires 2027-03-31
  structured-server keys check keys.yaml

\b
Exit codes of check: 0 all keys are taken, 3 some have expired, 4 the file is wrong.
"""
_NEW_EPILOG = """\b
Examples:
  structured-server keys new triage
  structured-server keys new triage --requests-per-minute 600 --expires 2027-03-31
  structured-server keys new triage > new-key.txt   # first line: the key; from the third on: the entry

The key goes to whoever calls, the entry into the server's --api-keys-file, below `keys:`.
"""
_CHECK_EPILOG = """\b
Examples:
  structured-server keys check keys.yaml && cp keys.yaml /etc/structured-server/keys.new \\
      && mv /etc/structured-server/keys.new /etc/structured-server/keys.yaml

\b
Exit codes: 0 all keys are taken, 3 some have expired, 4 the file is wrong.
"""


@click.group(epilog=_EPILOG)
def keys() -> None:
    """Make API keys, and check a keys file."""


@keys.command(epilog=_NEW_EPILOG)
@click.argument("name")
@click.option(
    "--requests-per-minute", type=click.IntRange(min=1), help="What it may ask for. Default: no limit."
)
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The first day, in UTC, on which it is no longer taken. Default: never.",
)
@click.option(
    "--cache-salt", is_flag=True, help="Keep the engine's cached prefixes apart from those of other keys."
)
def new(name: str, requests_per_minute: int | None, expires: datetime | None, cache_salt: bool) -> None:
    """Make a key for NAME. It is shown once and kept nowhere; the entry holds only its digest."""
    # Imported here: --help should not wait for it.
    from structured_server.keys import Key, digest_of, new_key

    key = new_key()
    day = expires.date() if expires else None
    try:
        entry = Key(name, digest_of(key.encode()), requests_per_minute, day, cache_salt)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    if entry.expired(_today()):
        raise click.UsageError("--expires must be a day to come.")
    click.echo(key)
    click.echo()
    click.echo(f"  - name: {entry.name}\n    sha256: '{entry.digest.hex()}'")
    if requests_per_minute:
        click.echo(f"    requests_per_minute: {requests_per_minute}")
    if day:
        click.echo(f"    expires: {day}")
    if cache_salt:
        click.echo("    cache_salt: true")
    click.echo("The key is shown only now. The entry goes below `keys:` in the keys file.", err=True)


@keys.command(epilog=_CHECK_EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Say which keys FILE holds and whether they are taken, or what is wrong with it."""
    from structured_server.keys import Key, load_keys

    try:
        found = load_keys(str(file))
    except SettingsError as error:
        raise Refused(error.message, BAD_INPUT) from None
    today = _today()

    def line(key: Key) -> str:
        limit = f"{key.requests_per_minute} a minute" if key.requests_per_minute else "no limit"
        until = (
            "no end"
            if key.expires is None
            else f"{'expired' if key.expired(today) else 'until'} {key.expires}"
        )
        salt = ", cache salt" if key.salted else ""
        return f"{key.name} ({key.digest.hex()[:SHOWN]}): {limit}, {until}{salt}"

    for key in found:
        click.echo(line(key))
    if not found:
        click.echo("no keys: nobody gets in")
    sys.exit(WARNINGS if any(key.expired(today) for key in found) else 0)


def _today() -> date:
    return datetime.now(UTC).date()
