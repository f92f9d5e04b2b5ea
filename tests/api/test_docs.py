"""What the pages in `docs` say of the server is what the server does."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

from structured_server import errors
from structured_server.api.errors import DECIDE, OPENAI, SYSTEM_ONE, InternalError, error_response
from structured_server.api.paths import BATCH, CHAT, DECISIONS, LINT, MODELS, SYSTEMONE
from structured_server.api.paths import DECIDE as DECIDE_PATHS
from structured_server.errors import Loading, Overloaded, StructuredServerError
from structured_server.settings import Settings, flag
from structured_server.wire import decisions, systemone
from structured_server.wire.extensions import Conditional, Extensions
from structured_server.wire.generation import GRAMMARS, WITHOUT_EFFECT, parse_object
from structured_server.wire.schema_message import schema_query

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WIRE = (ROOT / "docs" / "wire.md").read_text()

# One class for each row: classes that are not here are answered as the one above them in the tree.
ANSWERED = (
    errors.MalformedBody,
    errors.InvalidRequest,
    errors.InvalidQuestion,
    errors.MissingKey,
    errors.WrongKey,
    errors.UnknownRoute,
    errors.UnknownModel,
    errors.MethodNotAllowed,
    errors.StateTooLong,
    errors.BodyTooLarge,
    errors.UnsupportedEncoding,
    InternalError,
    errors.UpstreamError,
    errors.UpstreamTimeout,
    errors.UpstreamRejected,
    errors.Loading,
    errors.Overloaded,
    errors.RateLimited,
    errors.IdentityUnchecked,
    errors.DrawsMissing,
    errors.DeadlineExceeded,
)
NOT_ANSWERED = (errors.SettingsError, errors.TokenizerError, errors.DecisionLogError)  # they end the start


def raised(kind: type[StructuredServerError]) -> StructuredServerError:
    """Return an error as it is raised: three of them say themselves when to come back."""
    if issubclass(kind, Loading):
        return kind("what is wrong.", retry_after_s=30)
    if issubclass(kind, errors.RateLimited):
        return kind("what is wrong.", retry_after_s=60)
    return kind("what is wrong.", retry_after_s=1) if issubclass(kind, Overloaded) else kind("what is wrong.")


def row(kind: type[StructuredServerError]) -> str:
    """Return what the table of errors has to say of a class, up to its last column."""
    error = raised(kind)
    said = SYSTEM_ONE.body(error, "req_1")["detail"]
    if isinstance(said, list):
        detail = f"a list, `{said[0]['type']}`"
    else:
        detail = f"`{said}`" if isinstance(said, str) else f"`{said['error_type']}`"
    openai = OPENAI.body(error, "req_1")["error"]
    seconds = error_response(error, "req_1").headers.get("retry-after")
    again = f" {seconds} " if seconds else " "
    return (
        f"| `{error.code}` | {DECIDE.status_of(error)} | {SYSTEM_ONE.status_of(error)}, {detail} "
        f"| {OPENAI.status_of(error)}, `{openai['type']}`, `{openai['code']}` |{again}| "
    )


def examples(page: str, heading: str) -> list[str]:
    """Return the JSON that stands in a section."""
    section = page.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```json\n(.*?)```", section, re.DOTALL)


@pytest.mark.parametrize("kind", ANSWERED)
def test_the_table_of_errors_is_what_is_answered(kind: type[StructuredServerError]) -> None:
    assert row(kind) in WIRE


def test_the_table_of_errors_leaves_no_class_out() -> None:
    rows = set(map(row, ANSWERED))
    waiting = [StructuredServerError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if not kind.__subclasses__() and kind not in NOT_ANSWERED and kind.__module__.startswith("struct"):
            assert row(kind) in rows


@pytest.mark.parametrize("path", [*DECIDE_PATHS, *BATCH, *LINT, *SYSTEMONE, *DECISIONS, *CHAT, *MODELS])
def test_every_path_stands_on_the_page(path: str) -> None:
    assert re.search(rf"[`ST] ?{path}`", WIRE)


@pytest.mark.parametrize("model", [Extensions, Conditional])
def test_every_extension_stands_in_their_table(model: type[BaseModel]) -> None:
    table = WIRE.partition("\n### Extensions\n")[2].partition("\n## ")[0]
    for name in model.model_fields:
        assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", table, re.MULTILINE), name


@pytest.mark.parametrize("name", [*systemone.MODELS, *WITHOUT_EFFECT])
def test_every_name_that_is_treated_alike_stands_on_the_page(name: str) -> None:
    assert f"`{name}`" in WIRE


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_grammar_stands_on_the_page(name: str) -> None:
    assert f"`{name}`" in WIRE or name.startswith("guided_")


@pytest.mark.parametrize("page", ["operations.md"])
def test_every_setting_stands_in_their_table(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for setting in fields(Settings):
        assert re.search(rf"^\|[^|]*`--{flag(setting.name)}`[^|]*\|", text, re.MULTILINE), setting.name


def test_the_examples_of_requests_are_requests() -> None:
    system_one, *_ = examples(WIRE, "## System One")
    assert 3 == len(systemone.parse(system_one.encode(), ()).schema_of_questions())
    decided, *_ = examples(WIRE, "## Decisions")
    assert 3 == len(decisions.parse(decided.encode()).schema_of_questions())
    chat, *_ = examples(WIRE, "## Chat")
    asked = schema_query(parse_object(chat.encode()))
    assert asked is not None
    assert 2 == len(asked.schema_of_questions())


@pytest.mark.parametrize("heading", ["## System One", "## Decisions", "## Chat"])
def test_the_examples_of_answers_are_json(heading: str) -> None:
    _, answer, *_ = examples(WIRE, heading)
    assert json.loads(answer)["answers"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            file = page.parent / name if name else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target


def anchors(page: Path) -> set[str]:
    """Return what the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
