"""A `gcloud` that records what it is told, and keeps one project's state in a JSON file.

STUB_GCLOUD names the file: `calls`, `token`, `candidate_url`, `service`, `revisions`; `found` has what other
looks come to, and `failing` what is said of commands that fail, both by how the command begins. `made` has
what was created, as the API would describe it, by kind and name; `policies` the roles on things, by the same.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

VERBS = ("create", "delete", "start", "add-metadata", "add-iam-policy-binding", "remove-iam-policy-binding")


def main() -> int:
    """Answer one command."""
    file = Path(os.environ["STUB_GCLOUD"])
    state: dict[str, Any] = json.loads(file.read_text())
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    flags = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
    asked = " ".join(words)
    state.setdefault("calls", []).append(sys.argv[1:])
    status = answer(state, asked, words, flags)
    file.write_text(json.dumps(state))
    return status


def answer(state: dict[str, Any], asked: str, words: list[str], flags: dict[str, str]) -> int:
    """Print what gcloud would, change the state, and return the exit status."""
    for beginning, said in state.get("failing", {}).items():
        if asked.startswith(beginning):
            sys.stderr.write(said)
            return 1
    if asked == "auth print-identity-token":
        sys.stdout.write(state["token"] + "\n")
        return 0
    if asked.startswith("run services replace"):
        replace(state, yaml.safe_load(Path(words[3]).read_text()))
    elif asked.startswith("run services update-traffic"):
        name, _, share = flags["to-revisions"].partition("=")
        traffic = state["service"]["status"]["traffic"]
        tags = [{**each, "percent": 0} for each in traffic if "tag" in each]
        state["service"]["status"]["traffic"] = [*tags, {"revisionName": name, "percent": int(share)}]
    elif asked.startswith("run services delete"):
        state["service"] = None
    elif asked.startswith("run services describe"):
        return found(state.get("service"))
    elif asked.startswith("run revisions list"):
        return found(state.get("revisions", []))
    elif "describe" in words or "list" in words or "get-iam-policy" in words:
        known = {**state.get("found", {})}
        known = {**known, **{described(key): value for key, value in state.get("made", {}).items()}}
        known = {**known, **{policy_of(key): value for key, value in state.get("policies", {}).items()}}
        return found(next((known[each] for each in known if asked.startswith(each)), None))
    else:
        change(state, words, flags)
    return 0


def described(key: str) -> str:
    """Return the look at something that was made."""
    kind, _, name = key.rpartition(" ")
    return f"{kind} describe {name}"


def policy_of(key: str) -> str:
    """Return the look at the roles on something."""
    kind, _, name = key.rpartition(" ")
    return f"{kind} get-iam-policy {name}"


def change(state: dict[str, Any], words: list[str], flags: dict[str, str]) -> None:
    """Keep what is created, deleted, granted, and told to a machine."""
    made: dict[str, Any] = state.setdefault("made", {})
    verb = next((each for each in words if each in VERBS), None)
    if verb is None:
        return
    kind, name = " ".join(words[: words.index(verb)]), words[words.index(verb) + 1]
    key = f"{kind} {name}"
    if kind == "compute routers nats":
        made[f"compute routers {flags['router']}"].setdefault("nats", []).append({"name": name})
    elif verb == "create" and kind == "iam service-accounts":
        made[f"{key}@{flags['project']}.iam.gserviceaccount.com"] = {
            "description": flags.get("description", "")
        }
    elif verb == "create":
        made[key] = {"description": flags.get("description", ""), "flags": flags}
        if kind == "compute instances":
            made[key] |= {
                "machineType": f"https://x/machineTypes/{flags['machine-type']}",
                "status": "RUNNING",
            }
    elif verb == "delete":
        made.pop(key, None)
    elif verb == "start":
        made[key]["status"] = "RUNNING"
    elif verb.endswith("binding"):
        bindings = state.setdefault("policies", {}).setdefault(key, {}).setdefault("bindings", [])
        binding = {"role": flags["role"], "members": [flags["member"]]}
        if verb.startswith("add"):
            bindings.append(binding)
        else:
            bindings.remove(binding)
    if "metadata-from-file" in flags:
        pairs = [each.partition("=")[::2] for each in flags["metadata-from-file"].split(",")]
        items = [{"key": each, "value": Path(file).read_text()} for each, file in pairs]
        made[key]["metadata"] = {"items": items}


def found(what: Any) -> int:
    """Print it, or fail as gcloud does where there is none."""
    if what is None:
        sys.stderr.write("ERROR: (gcloud) " + os.environ.get("STUB_ABSENT", "NOT_FOUND: no such resource"))
        return 1
    sys.stdout.write(json.dumps(what))
    return 0


def replace(state: dict[str, Any], service: dict[str, Any]) -> None:
    """Take a new revision."""
    name = service["spec"]["template"]["metadata"]["name"]
    traffic = [
        {**each, "url": state["candidate_url"]} if "tag" in each else each
        for each in service["spec"]["traffic"]
    ]
    state["service"] = {**service, "status": {"traffic": traffic}}
    state.setdefault("revisions", []).append(
        {
            "metadata": {"name": name, "creationTimestamp": datetime.now(UTC).isoformat()},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


if __name__ == "__main__":
    sys.exit(main())
