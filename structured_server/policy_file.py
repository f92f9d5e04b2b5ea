"""The policy file: temperatures and entropy thresholds that were fitted for one question set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from structured_server.core.policy import ByType, FittedPolicy
from structured_server.errors import SettingsError

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Temperatures(_Strict):
    noul: _Positive = 1.0
    choice: _Positive = 1.0
    score: _Positive = 1.0


class _Thresholds(_Strict):
    noul: _NotNegative
    choice: _NotNegative
    score: _NotNegative


class _PolicyFile(_Strict):
    policy: Annotated[str, Field(min_length=1, max_length=64)]
    fingerprint: Annotated[str, Field(pattern=r"^fp_[0-9a-f]+$")]
    temperatures: _Temperatures | None = None
    thresholds: _Thresholds | None = None


def load_policy(file: str) -> FittedPolicy:
    """Read a policy from a file of JSON or YAML.

    Raises:
        SettingsError: it cannot be read, or is no policy.
    """
    try:
        found = yaml.safe_load(Path(file).read_bytes())
    except OSError as error:
        raise SettingsError(f"--policy {file} cannot be read: {error.strerror}.") from None
    except Exception:  # of dates, numbers and tags that are none PyYAML lets through whatever they raise
        raise SettingsError(f"--policy {file} is neither JSON nor YAML.") from None
    try:
        said = _PolicyFile.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise SettingsError(f"--policy {file}: {where}: {first['msg']}.") from None
    return FittedPolicy(
        said.policy,
        said.fingerprint,
        ByType(**said.temperatures.model_dump()) if said.temperatures else None,
        ByType(**said.thresholds.model_dump()) if said.thresholds else None,
    )
