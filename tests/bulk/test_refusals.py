"""What a run does not begin with: bad input, other questions, a model that was not taught them."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from structured_server.bulk.rows import Source
from tests.bulk.labelling import (
    batch,
    incidents,
    manifest_of,
    read_csv,
    write_csv,
)
from tests.bulk.sixty import ROWS, Files, command
from tests.fake_server import answer, serving


def test_questions_that_the_demo_model_was_not_taught_stop_before_anything_is_written(
    embedded_url: str, tmp_path: Path
) -> None:
    other = tmp_path / "q.yaml"
    other.write_text(yaml.safe_dump({"rain": {"type": "noul", "instructions": "Will it rain tomorrow?"}}))
    source, out = write_csv(tmp_path / "in.csv", incidents(3)), tmp_path / "out.csv"
    result = batch(source, "-o", out, "-q", other, "-u", embedded_url)
    assert 4 == result.exit_code
    assert "was never taught rain" in result.output
    assert "--allow-demo-model" in result.output
    assert not list(tmp_path.glob("out*"))
    estimated = batch(source, "-q", other, "-u", embedded_url, "--estimate")
    assert (4, True) == (estimated.exit_code, "was never taught rain" in estimated.output)
    assert 0 == batch(source, "-o", out, "-q", other, "-u", embedded_url, "--allow-demo-model").exit_code


def test_a_changed_input_or_question_is_refused_unless_mixing_is_allowed(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    rows = incidents(10)
    source, out = write_csv(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    command = (source, "-o", out, "-q", questions, "-u", embedded_url)
    batch(*command)
    before = read_csv(out)
    rows.insert(4, {"id": "new", "text": "Invoices are declined", "owner": ""})
    del rows[0]
    write_csv(source, rows)
    refused = batch(*command)
    assert 4 == refused.exit_code
    assert "the input's content" in refused.output
    assert before == read_csv(out)
    assert 0 == batch(*command, "--allow-mixed").exit_code
    found = read_csv(out)
    assert [row["id"] for row in rows] == [each["id"] for each in found]
    assert [each for each in found if each["id"] != "new"] == before[1:], "rows that were there are kept"
    assert manifest_of(out)["mixed"]

    refused = batch(*command, "--samples", 2)
    assert 4 == refused.exit_code
    assert '"samples": 2' in refused.output
    asked = yaml.safe_load(questions.read_text())
    asked["team"]["instructions"] = "Whose is it?"
    questions.write_text(yaml.safe_dump(asked, sort_keys=False))
    refused = batch(*command)
    assert 4 == refused.exit_code
    assert "changed: the questions." in refused.output
    del asked["team"]
    questions.write_text(yaml.safe_dump(asked, sort_keys=False))
    refused = batch(*command, "--allow-mixed")
    assert 4 == refused.exit_code
    assert "other columns than this run would write: -team" in refused.output
    assert 0 == batch(*command, "--overwrite").exit_code
    assert "team" not in read_csv(out)[0]


def test_bad_input_exits_with_4_and_says_what_would_be_right(
    embedded_url: str, questions: Path, tmp_path: Path
) -> None:
    source, out = write_csv(tmp_path / "in.csv", incidents(2)), tmp_path / "out.csv"
    broken, other, taken = tmp_path / "broken.yaml", tmp_path / "other.csv", tmp_path / "taken.csv"
    broken.write_text(yaml.safe_dump({"q": {"type": "choice", "criteria": {"only": None}}}))
    other.write_text("team\nx\n")
    taken.write_text("precious\n")
    (tmp_path / "flat.yaml").write_text("q: 1")
    (tmp_path / "date.yaml").write_text("q: {type: noul, instructions: !!timestamp 2026-11-30}")
    common = ("-u", embedded_url)
    for arguments, said in (
        ((tmp_path / "none.csv", "-o", out, "-q", questions), "cannot read"),
        ((source, "-o", out, "-q", questions, "--state-column", "body"), "It has: id, text, owner."),
        ((source, "-o", out, "-q", questions, "--id-column", "key"), "--id-column key"),
        ((source, "-o", out, "-q", questions, "--gold", "team=key"), "--gold key"),
        ((source, "-o", tmp_path / "out.xml", "-q", questions), "--output-format"),
        ((source, "-o", tmp_path / "no" / "out.csv", "-q", questions), "cannot write"),
        ((source, "-o", out, "-q", broken), "needs at least 2 options"),
        ((source, "-o", out, "-q", tmp_path / "flat.yaml"), "question q must be an object"),
        ((source, "-o", out, "-q", tmp_path / "date.yaml"), "no word for its date"),
        ((source, "-o", out, "-q", questions, "--samples", "many"), "read.samples"),
        ((other, "-o", out, "-q", questions), "--prefix out."),
        ((source, "-o", taken, "-q", questions), "--overwrite"),
        ((source, "-o", out, "-q", questions, "-u", "nowhere"), "is no address such as http"),
    ):
        result = batch(*common, *arguments)
        assert 4 == result.exit_code, (arguments, result.output)
        assert said in result.output
        assert not list(tmp_path.glob("out*"))
    assert "precious\n" == taken.read_text()
    misused: tuple[tuple[object, ...], ...] = (
        (source, "-q", questions),
        (source, "-o", source, "-q", questions),
        (source, "-o", out, "-q", questions, "--gold", "owner"),
        (source, "-o", out, "-q", questions, "--gold", "x=owner"),
    )
    for usage in misused:
        assert 2 == batch(*common, *usage).exit_code


def test_rows_that_are_not_those_of_the_output_are_never_put_behind_them(files: Files) -> None:
    with serving(lambda _, body: answer(body)) as fake:
        assert 0 == batch(*command(files, fake.url, "--limit", 30)).exit_code
        found = manifest_of(files[1])
        write_csv(files[0], [ROWS[1], ROWS[0], *ROWS[2:]])
        found["input"]["digest"] = Source(files[0], "csv").survey().digest  # as a restored file might have it
        files[1].with_name("out.csv.manifest.json").write_text(json.dumps(found))
        result = batch(*command(files, fake.url))
    assert 4 == result.exit_code
    assert "row 1 (line 2)" in result.output
    assert 30 == len(read_csv(files[1]))


def test_a_manifest_that_cannot_be_read_is_said(files: Files) -> None:
    files[1].write_text("id,text\n")
    for text in ("", "{", "[]", '{"format": 2}'):
        files[1].with_name("out.csv.manifest.json").write_text(text)
        result = batch(*command(files, "http://127.0.0.1:9"))
        assert (4, True) == (result.exit_code, "is no manifest that this version can use" in result.output)
