"""The keys file: names and digests of keys, with what each may."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from structured_server.errors import SettingsError
from structured_server.keys.ring import NAME, Key


def _day(given: object) -> object:
    """Take a day as YAML or JSON has it. pydantic alone would take a number, as seconds since 1970."""
    if given is None or (isinstance(given, date) and not isinstance(given, datetime)):
        return given
    if isinstance(given, str):
        try:
            return date.fromisoformat(given)
        except ValueError:
            pass
    raise ValueError("must be a day such as 2027-03-31")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    requests_per_minute: Annotated[StrictInt, Field(ge=1)] | None = None
    expires: Annotated[date | None, BeforeValidator(_day)] = None
    cache_salt: StrictBool = False


class _KeysFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: list[_Entry]


_FIELDS = {"keys", *_Entry.model_fields}
_SAID = {
    "extra_forbidden": f"is not known; known are {', '.join(_Entry.model_fields)}",
    "missing": "is missing",
    "model_type": "must be an object",
}


def load_keys(file: str) -> tuple[Key, ...]:
    """Read the keys from a file of JSON or YAML. None at all is possible, and locks everybody out.

    Raises:
        SettingsError: it cannot be read, or is no file of keys. The message repeats nothing of what stands in
            it: somebody may have put a key where its digest belongs.
    """
    where = f"the keys file {file}"
    try:
        found = yaml.safe_load(Path(file).read_bytes())
    except OSError as error:
        raise SettingsError(f"{where} cannot be read: {error.strerror}.") from None
    except Exception:  # of dates, numbers and tags that are none PyYAML lets through whatever they raise
        raise SettingsError(f"{where} is neither JSON nor YAML.") from None
    try:
        entries = _KeysFile.model_validate(found).keys
    except ValidationError as error:
        raise SettingsError(f"{where}: {_what_is_wrong(error)}.") from None
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        first = seen.setdefault(entry.sha256.lower(), index)
        if first != index:
            raise SettingsError(f"{where}: keys.{index} has the same sha256 as keys.{first}.")
    return tuple(
        Key(
            entry.name,
            bytes.fromhex(entry.sha256),
            entry.requests_per_minute,
            entry.expires,
            entry.cache_salt,
        )
        for entry in entries
    )


def _what_is_wrong(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    place = [str(part) if isinstance(part, int) or part in _FIELDS else "a field" for part in first["loc"]]
    message = _SAID.get(first["type"], first["msg"].removeprefix("Value error, "))
    return f"{'.'.join(place) or 'the file'}: {message}"
