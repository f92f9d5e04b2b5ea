"""The manifest beside an output: what it was made from, and by which model, to compare the next run with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import structured_server
from structured_server.bulk.errors import BadInput, Changed
from structured_server.bulk.files import write_whole

FORMAT = 1


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def digest_of(value: Any) -> str:
    """Return a digest of JSON; the order of fields counts, since it can move numbers."""
    return blake2b(json.dumps(value, ensure_ascii=True).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an output was made from. `settings` are those that move numbers or columns."""

    input: Mapping[str, Any]
    questions: str
    settings: Mapping[str, Any]
    columns: tuple[str, ...]
    provenance: Mapping[str, Any] | None = None
    fingerprints: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    finished: bool = False
    mixed: bool = False
    version: str = structured_server.__version__
    started: str = field(default_factory=now)
    updated: str = field(default_factory=now)

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read one; None where there is none.

        Raises:
            BadInput: it cannot be used.
        """
        try:
            said = json.loads(path.read_text("utf-8"))
            found = cls(**{name: value for name, value in said.items() if name != "format"})
            known = said["format"] == FORMAT
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            known = False
        if not known:
            raise BadInput(
                f"{path} is no manifest that this version can use. Start anew with --overwrite."
            ) from None
        return replace(found, columns=tuple(found.columns), fingerprints=tuple(found.fingerprints))

    def save(self, path: Path) -> None:
        """Write it."""
        said = {"format": FORMAT, **asdict(replace(self, updated=now()))}
        write_whole(path, json.dumps(said, ensure_ascii=False, indent=2) + "\n")

    def learn(self, provenance: Mapping[str, Any], model: str) -> Manifest:
        """Return it with one more fingerprint."""
        return replace(
            self,
            provenance={"model": model, **provenance},
            fingerprints=(*self.fingerprints, provenance["fingerprint"]),
        )

    def continued(self, wanted: Manifest, output: Path, *, allow_mixed: bool) -> Manifest:
        """Return the manifest of a run that goes on with this output.

        Raises:
            Changed: it would be about something else; other columns are refused even where mixing is allowed.
        """
        if self.columns != wanted.columns:
            apart = _apart(self.columns, wanted.columns)
            raise Changed(
                f"{output} has other columns than this run would write: {apart}. Write to another file, or "
                "start anew with --overwrite."
            )
        changes = []
        if self.input["digest"] != wanted.input["digest"]:
            changes.append("the input's content")
        if self.questions != wanted.questions:
            changes.append("the questions")
        changes += [
            f"{name} (was {_brief(self.settings.get(name))}, now {_brief(wanted.settings.get(name))})"
            for name in sorted({*self.settings, *wanted.settings})
            if self.settings.get(name) != wanted.settings.get(name)
        ]
        if changes and not allow_mixed:
            raise Changed(
                f"{output} was made differently; since then these have changed: {', '.join(changes)}. "
                "Keep its rows and go on with --allow-mixed, or start anew with --overwrite."
            )
        return replace(
            wanted,
            provenance=self.provenance,
            fingerprints=self.fingerprints,
            counts=self.counts,
            mixed=self.mixed or bool(changes),
            started=self.started,
        )


def _apart(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    gone = [f"-{name}" for name in before if name not in after]
    new = [f"+{name}" for name in after if name not in before]
    return ", ".join([*gone, *new][:12]) or "they are in another order"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
