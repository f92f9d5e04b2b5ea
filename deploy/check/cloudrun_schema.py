"""Holds Cloud Run's YAML against Google's own description of its API, in which no unknown field may stand.

python -m deploy.check.cloudrun_schema deploy/cloudrun/service.yaml ...
"""

from __future__ import annotations

import importlib.resources
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema

from deploy.cloudrun.manifest import complete
from deploy.cloudrun.target import EXAMPLE

DOCUMENT = "discovery_cache/documents/run.v1.json"


def strict_schema(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the JSON schema of one type of a discovery document, with no room for other properties."""
    definitions = {each: _strict(schema) for each, schema in document["schemas"].items()}
    return {"$ref": f"#/definitions/{name}", "definitions": definitions}


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"$ref": f"#/definitions/{schema['$ref']}"}
    strict: dict[str, Any] = {}
    kind = schema.get("type")
    # int64 travels as text in JSON; in YAML either is taken.
    if kind and kind != "any":
        strict["type"] = ["integer", "string"] if schema.get("format") == "int64" else kind
    if "properties" in schema:
        strict["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
        strict["additionalProperties"] = False
    elif isinstance(extra := schema.get("additionalProperties"), Mapping):
        strict["additionalProperties"] = _strict(extra)
    if "items" in schema:
        strict["items"] = _strict(schema["items"])
    return strict


def problems(text: str) -> Iterator[str]:
    """Yield what is wrong with a manifest, each with the place."""
    root = importlib.resources.files("googleapiclient")
    document = json.loads(root.joinpath(DOCUMENT).read_text(encoding="utf-8"))
    # IntOrString is described as an object and written as a number.
    document["schemas"]["IntOrString"] = {"type": "any"}
    validator = jsonschema.Draft7Validator(strict_schema(document, "Service"))
    given = complete(text, EXAMPLE, "structured-server-00002", "structured-server-00001")
    for error in validator.iter_errors(given):
        yield f"{'.'.join(map(str, error.absolute_path)) or '(root)'}: {error.message}"


def main() -> None:
    """Check the files that are named. Exit code 1 if one is wrong."""
    found = [f"{name}: {problem}" for name in sys.argv[1:] for problem in problems(Path(name).read_text())]
    for line in found:
        print(line)  # noqa: T201  a checker says what it finds
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
