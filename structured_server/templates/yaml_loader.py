"""YAML that takes JSON's numbers for numbers: YAML 1.1 wants a point in those with an exponent."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"-?\d+(?:\.\d+)?[eE][-+]?\d+$"), list("-0123456789")
)


def load_yaml(text: str) -> Any:
    """Return what a text holds, or raise what PyYAML does."""
    return yaml.load(text, _Loader)  # noqa: S506  a SafeLoader
