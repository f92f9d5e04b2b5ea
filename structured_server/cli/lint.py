"""`structured-server lint`: what a question set comes to, without a server, an engine or a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from structured_server.cli.exits import BAD_INPUT, WARNINGS, Refused
from structured_server.cli.options import output_option
from structured_server.cli.request import read_questions, read_state
from structured_server.core.plan import Capabilities
from structured_server.settings import WIDEST_CANVAS, WIDTH_STEP

if TYPE_CHECKING:
    from structured_server.core.tokens import Tokenizer
    from structured_server.wire.decide_request import Asking
    from structured_server.wire.lint import Linted

_EPILOG = """\b
Examples:
  structured-server lint questions.yaml
  structured-server lint questions.yaml --tokenizer ./model --max-model-len 8192 --state-tokens 6000
  structured-server lint questions.yaml --isolate auto --state-file alert.json -o json
  structured-server lint questions.yaml --against questions.v1.yaml

\b
Without --tokenizer the questions are held against the model in this package. With it, against a vLLM server's
limits: 128 label ids a read, a context of --max-model-len. Read options override those of both files.

\b
Exit codes: 0 clean, 3 warnings, 4 bad input.
"""


def _read_option(name: str, says: str, *values: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(f"--{name}", type=click.Choice(values) if values else None, help=says)


@click.command(epilog=_EPILOG)
@click.argument("questions_file", metavar="QUESTIONS", type=click.Path(path_type=Path))
@click.option(
    "--against",
    "old_file",
    type=click.Path(path_type=Path),
    help="An earlier file: say what moves numbers since.",
)
@click.option("--tokenizer", "source", help="Folder or hub id of the model's tokenizer.")
@click.option("--tokenizer-revision", help="Revision of a tokenizer from the hub.")
@click.option("--canvas", type=int, default=64, show_default=True, help="The widest canvas in tokens.")
@click.option("--max-model-len", type=click.IntRange(min=1), help="The engine's context in tokens.")
@click.option(
    "--max-label-ids", type=click.IntRange(min=0), help="Label ids a read may ask for; 0 for no cap."
)
@click.option(
    "-f",
    "--state-file",
    type=click.Path(path_type=Path),
    help="Count a state's tokens; .json is read as JSON.",
)
@click.option(
    "--state-tokens", type=click.IntRange(min=0), help="Tokens of the longest state that will come."
)
@_read_option("samples", 'Draws to average, 1 to 32, or "auto".')
@_read_option("layout", "Questions before the state or after.", "schema_first", "document_first")
@_read_option("isolate", "Which questions are read apart.", "none", "noul", "all", "auto")
@_read_option("template", "The answer text that is seeded.", "json", "lines")
@_read_option("keys", "How the answer text names questions.", "auto", "named", "neutral")
@output_option
def lint(
    questions_file: Path,
    old_file: Path | None,
    source: str | None,
    tokenizer_revision: str | None,
    canvas: int,
    max_model_len: int | None,
    max_label_ids: int | None,
    state_file: Path | None,
    state_tokens: int | None,
    output: Literal["table", "json"],
    **read: str | None,
) -> None:
    """Show the canvases, labels, reads and tokens of QUESTIONS, and warn of what makes answers worse.

    QUESTIONS is a file of JSON or YAML: the questions by id, or an object with `questions` and `read`.
    """
    body = _with_options(read_questions(questions_file), read)
    if old_file is not None:
        body["against"] = _with_options(read_questions(old_file), read)
    if state_file is not None:
        body["state"] = read_state(None, state_file, False)
    if state_tokens is not None:
        body["longest_state_tokens"] = state_tokens
    report = _report(body, source, tokenizer_revision, canvas, max_model_len, max_label_ids)
    if output == "json":
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        from structured_server.cli.lint_table import print_report

        print_report(report)
    sys.exit(WARNINGS if report["warnings"] else 0)


def _with_options(body: dict[str, Any], read: dict[str, str | None]) -> dict[str, Any]:
    given: dict[str, Any] = {name: value for name, value in read.items() if value is not None}
    samples = read["samples"]
    if samples is not None and samples.isdecimal():
        given["samples"] = int(samples)
    if given and isinstance(body.setdefault("read", {}), dict):
        body["read"] = {**body["read"], **given}
    return body


def _report(
    body: dict[str, Any],
    source: str | None,
    revision: str | None,
    canvas: int,
    max_model_len: int | None,
    max_label_ids: int | None,
) -> dict[str, Any]:
    """Return the report in the shape of `LintResponse`.

    Raises:
        Refused: the questions could not be asked, or the tokenizer cannot be had.
    """
    # Imported here: --help and missing files should not wait for it.
    from pydantic import ValidationError

    from structured_server.errors import CallerError, StructuredServerError
    from structured_server.wire.lint import LintRequest, render, within_against
    from structured_server.wire.validation import caller_error

    try:
        try:
            asked = LintRequest.model_validate_json(json.dumps(body))
        except ValidationError as error:
            raise caller_error(error, LintRequest) from None
        state = asked.state_text()
        tokenizer, capabilities = _engine(source, revision, canvas, max_model_len, max_label_ids)
        new = _linted(asked, tokenizer, capabilities, state, asked.longest_state_tokens)
        old = None
        if asked.against is not None:
            with within_against():
                old = _linted(asked.against, tokenizer, capabilities)
        return render(new, old, tokenizer, model=None, ready=None)
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(f"the questions cannot be sent as JSON: {type(error).__name__}.", BAD_INPUT) from None
    except StructuredServerError as error:
        message = error.message if isinstance(error, CallerError) else error.message.rstrip(".") + "."
        raise Refused(" ".join(filter(None, (message, error.hint))), BAD_INPUT) from None


def _engine(
    source: str | None,
    revision: str | None,
    canvas: int,
    max_model_len: int | None,
    max_label_ids: int | None,
) -> tuple[Tokenizer, Capabilities]:
    """Return the tokenizer, and what an engine with such a model can do."""
    from structured_server.tokenizer import load_tokenizer

    if canvas % WIDTH_STEP or not WIDTH_STEP <= canvas <= WIDEST_CANVAS:
        raise Refused(
            f"--canvas must be a multiple of {WIDTH_STEP} up to {WIDEST_CANVAS}, got {canvas}.", BAD_INPUT
        )
    widths = tuple(range(WIDTH_STEP, canvas + 1, WIDTH_STEP))
    if source is None:
        from structured_server.backends.embedded.backend import MAX_MODEL_LEN
        from structured_server.backends.embedded.model import PACKAGED

        tokenizer = load_tokenizer(str(PACKAGED))
        return tokenizer, Capabilities(widths, max_label_ids or None, max_model_len or MAX_MODEL_LEN)
    from structured_server.backends.vllm.backend import MAX_LABEL_IDS
    from structured_server.wire.fields import MAX_STEPS

    cap = MAX_LABEL_IDS if max_label_ids is None else max_label_ids or None
    capabilities = Capabilities(
        widths, cap, max_model_len, max_steps=MAX_STEPS, constrained=True, generation=True
    )
    return load_tokenizer(source, revision=revision), capabilities


def _linted(
    asked: Asking,
    tokenizer: Tokenizer,
    capabilities: Capabilities,
    state: str | None = None,
    longest_state_tokens: int | None = None,
) -> Linted:
    """Measure questions. No model is in the fingerprint: compare it with others of this command only."""
    from structured_server.core.plan import Compiler, ReadOptions
    from structured_server.core.policy import ReadPolicy
    from structured_server.core.provenance import fingerprint, question_set_id
    from structured_server.jobs import Frame, refuse_unsupported
    from structured_server.linting import facts_of
    from structured_server.wire.lint import Linted

    schema = asked.schema_of_questions()
    options, policy = asked.read_options(ReadOptions()), asked.read_policy(ReadPolicy())
    refuse_unsupported(options, (), capabilities, tokenizer)
    frame = Frame.around(Compiler(options, capabilities, tokenizer).plan(schema), capabilities, tokenizer)
    facts = facts_of(
        frame,
        policy,
        seed=asked.read.seed,
        long_state=asked.read.long_state,
        state=state,
        longest_state_tokens=longest_state_tokens,
    )
    return Linted(
        facts, question_set_id(schema), fingerprint(frame.plan, policy, ("lint", tokenizer.fingerprint))
    )
