"""`structured-server decide`: one decision from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

import click

from structured_server.cli.exits import AUTH, BAD_INPUT, SERVER, UNDECIDED, Refused
from structured_server.cli.options import output_option, server_options

_EPILOG = """\b
Examples:
  structured-server decide -q questions.yaml "Checkout answers 502 since the rollout"
  structured-server decide -q questions.yaml -f alert.json --samples 4
  tail -n 50 app.log | structured-server decide -q questions.yaml -o json -

\b
Exit codes: 0 all decided, 3 something undecided, 4 bad input, 5 server, 6 authentication.
"""


@click.command(epilog=_EPILOG)
@click.argument("state", required=False)
@click.option(
    "-q",
    "--questions",
    "questions_file",
    required=True,
    type=click.Path(path_type=Path),
    help="Questions, JSON or YAML.",
)
@click.option(
    "-f",
    "--state-file",
    type=click.Path(path_type=Path),
    help="Read the state from a file; .json is read as JSON.",
)
@click.option("--json-state", is_flag=True, help="The state is JSON, wherever it comes from.")
@server_options
@click.option("-m", "--model", help="The model's name; the server's own by default.")
@click.option("--samples", help='Draws to average, 1 to 32, or "auto".')
@click.option(
    "--layout",
    type=click.Choice(["schema_first", "document_first"]),
    help="Questions before the state or after.",
)
@click.option(
    "--isolate", type=click.Choice(["none", "noul", "all", "auto"]), help="Which questions are read apart."
)
@output_option
def decide(
    state: str | None,
    questions_file: Path,
    state_file: Path | None,
    json_state: bool,
    url: str,
    token: str | None,
    model: str | None,
    samples: str | None,
    layout: str | None,
    isolate: str | None,
    timeout: float,
    output: Literal["table", "json"],
) -> None:
    """Answer typed questions about STATE: text, or - for standard input."""
    body = read_questions(questions_file)
    body["state"] = read_state(state, state_file, json_state)
    if model:
        body["model"] = model
    for name, value in (("samples", _samples(samples)), ("layout", layout), ("isolate", isolate)):
        if value is not None:
            body.setdefault("read", {})[name] = value
    answer = ask(url, token, body, timeout)
    if output == "json":
        click.echo(json.dumps(answer, ensure_ascii=False, indent=2))
    else:
        from structured_server.cli.table import print_answers

        print_answers(answer)
    sys.exit(UNDECIDED if answer["undecided"] else 0)


def read_questions(file: Path) -> dict[str, Any]:
    """Read a file of questions: the map itself, or a request body without its state.

    Raises:
        Refused: it cannot be read, or holds something else.
    """
    import yaml

    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}.", BAD_INPUT) from None
    except UnicodeDecodeError:
        raise Refused(f"{file} is not UTF-8 text.", BAD_INPUT) from None
    except Exception as error:  # PyYAML lets through what dates, numbers and tags that are none raise
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Refused(f"{file} is neither JSON nor YAML{where}.", BAD_INPUT) from None
    if not isinstance(found, dict) or not found:
        raise Refused(f"{file} must hold questions by id, or an object with `questions`.", BAD_INPUT)
    return found if isinstance(found.get("questions"), dict) else {"questions": found}


def read_state(argument: str | None, file: Path | None, as_json: bool) -> Any:
    """Return the state: text, or what its JSON holds.

    Raises:
        Refused: there is none, more than one, or it cannot be read.
    """
    if (argument is None) == (file is None):
        raise Refused(
            "give the state once: as an argument, with --state-file, or as - for standard input.", BAD_INPUT
        )
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except OSError as error:
            raise Refused(f"cannot read {file}: {error.strerror}.", BAD_INPUT) from None
        except UnicodeDecodeError:
            raise Refused(f"{file} is not UTF-8 text.", BAD_INPUT) from None
        as_json = as_json or file.suffix == ".json"
    else:
        assert argument is not None
        text = sys.stdin.read() if argument == "-" else argument
    if not as_json:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(f"the state is not JSON: {error}.", BAD_INPUT) from None


def _samples(given: str | None) -> int | str | None:
    return int(given) if given is not None and given.isdecimal() else given


def ask(
    url: str, token: str | None, body: dict[str, Any], timeout: float, *, trust_env: bool = True
) -> dict[str, Any]:
    """Send a decision and return the answer; `trust_env` heeds proxies that the environment names.

    Raises:
        Refused: there is no answer, or it is an error.
    """
    import httpx

    base = url.rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        reply = httpx.post(f"{base}/decide", json=body, headers=headers, timeout=timeout, trust_env=trust_env)
    except httpx.TimeoutException:
        raise Refused(f"no answer from {base} within {timeout:g} s.", SERVER) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Refused(f"cannot reach {base}: {error}.", SERVER) from None
    except ValueError as error:
        raise Refused(f"the request cannot be sent as JSON: {error}.", BAD_INPUT) from None
    try:
        answer = reply.json()
        message = None if reply.is_success else _explained(answer["error"])
    except (ValueError, KeyError, TypeError):
        raise Refused(
            f"{base} answered {reply.status_code}, not as a structured-server does.", SERVER
        ) from None
    if message is None:
        assert isinstance(answer, dict)
        return answer
    if reply.status_code in (401, 403):
        raise Refused(f"{message} Use --token.", AUTH)
    raise Refused(message, BAD_INPUT if reply.status_code < 500 else SERVER)


def _explained(error: dict[str, Any]) -> str:
    return " ".join(part for part in (error["message"], error.get("hint")) if part)
