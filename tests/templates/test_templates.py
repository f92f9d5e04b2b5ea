"""Templates: any value comes through as itself, and whatever is wrong is told with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.templates import Template, TemplateError, load, packaged, parse

NASTY = [
    'He said "no"\nand left',
    "a: b # c",
    "\\ \t \r \x00 \x7f \x85 \u2028 \u2029 \ufeff",
    "</script> {{ x }} {% if %} {# #}",
    "emoji \U0001f600, \ud7ff \ufffd",
    "- list\n- of: things",
    "yes",
    "null",
    "~",
    "",
    " leading and trailing ",
    "%{}[]&*!|>'`@",
]
texts = st.text() | st.sampled_from(NASTY)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
QUESTIONS = '"questions": {"q": {"type": "noul", "instructions": "So?"}}'


def asking(state: str) -> str:
    """Return a JSON template with this state and a question."""
    return '{"state": ' + state + ", " + QUESTIONS + "}"


def made(text: str, name: str = "t.json.tmpl") -> Template:
    return parse(name, name, text)


def found(body: Any, marked: str) -> bool:
    if isinstance(body, dict):
        return any(found(each, marked) for each in (*body, *body.values()))
    return any(found(each, marked) for each in body) if isinstance(body, list) else body == marked


@pytest.mark.parametrize("template", packaged(), ids=lambda template: template.name)
@given(data=st.data())
def test_any_text_comes_through_each_packaged_template_as_itself(
    template: Template, data: st.DataObject
) -> None:
    values = {variable.name: data.draw(texts, label=variable.name) for variable in template.variables}
    body = template.render(values)
    for value in values.values():
        assert found(body["state"], value)
    assert body["questions"] == template.render(dict.fromkeys(values, "x"))["questions"], "nothing gets out"


WAYS = {
    "jinja, JSON": (asking("{{ x | tojson }}"), "t.json.tmpl"),
    "jinja, YAML": ("state: {{ x | tojson }}\nquestions: {q: {type: noul}}", "t.yaml.tmpl"),
    "go, JSON": (asking("{{ toJson .x }}"), "t.json.tmpl"),
    "go, piped": (asking("{{ .x | toPrettyJson | indent 4 }}"), "t.json.tmpl"),
    "go, YAML": ("state: {{- .x | toJson }}\nquestions: {q: {type: noul}}", "t.yaml.tmpl"),
}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "go, YAML"])
@given(value=json_values)
def test_any_json_comes_through_as_itself(way: str, value: Any) -> None:
    text, name = WAYS[way]
    assert value == made(text, name).render({"x": value})["state"]


@pytest.mark.parametrize("name", ["t.json.tmpl", "t.yaml.tmpl"])
@pytest.mark.parametrize("place", ["{{ x }}", "{{ .x }}"])
@given(value=texts)
def test_text_between_quotes_is_that_text(name: str, place: str, value: str) -> None:
    text = asking(f'"<{place}>"')
    assert f"<{value}>" == made(text, name).render({"x": value})["state"]


def test_numbers_stand_as_they_are_and_filters_change_text() -> None:
    text = asking('{"n": {{ n }}, "b": {{ b }}, "s": "{{ s | upper }} {{ n }}"}')
    state = made(text).render({"n": 10**30, "b": True, "s": 'a"b'})["state"]
    assert {"n": 10**30, "b": True, "s": f'A"B {10**30}'} == state


GO = """{{/* Triage of a ticket.
ticket: what they wrote
*/}}
{
  "state": {"ticket": {{ .ticket | trim | toJson }}, "who": "{{ default "somebody" .who | upper }}"},
  "read": {"samples": {{- .samples | default 1 }} },
  "questions": {"q": {"type": "noul", "instructions": "{{ .ask | default `Is it "so"?` | lower }}"}}
}
"""


def test_a_go_template_is_read_as_go_reads_it() -> None:
    template = made(GO)
    assert "Triage of a ticket." == template.description
    wanted = {variable.name: (variable.required, variable.description) for variable in template.variables}
    assert {
        "ticket": (True, "what they wrote"),
        "who": (False, ""),
        "samples": (False, ""),
        "ask": (False, ""),
    } == wanted
    body = template.render({"ticket": ' He said "no" '})
    assert {"ticket": 'He said "no"', "who": "SOMEBODY"} == body["state"]
    assert 1 == body["read"]["samples"]
    assert 'is it "so"?' == body["questions"]["q"]["instructions"]
    assert "BO" == template.render({"ticket": "x", "who": "bo", "samples": 4})["state"]["who"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ if .x }}a{{ end }}", "line 1: `if` of Go templates is not read here; Jinja says {% if name %}"),
        ("\n\n{{ range .xs }}", "line 3: `range`"),
        ("{{ with .x }}", "`with`"),
        ("{{ printf .x }}", "line 1: `printf` of Go templates is not read here; Jinja says the text around"),
        ("{{ .user.name }}", ".user.name is a field of a variable; in Jinja write {{ user.name }}."),
        ("{{ $x := .y }}", "`$` of Go templates is not read here; Jinja says {% set x = name %}"),
        ("{{ (toJson .x) }}", "`(` of Go templates is not read here; Jinja says {{ name | first | second }}"),
        (
            "\n{{ len .xs }}",
            "line 2: `len` of Go templates is not read here; Jinja says {{ names | length }}",
        ),
        ("{{ sha256sum .x }}", "the function sha256sum is not read here. There are toJson"),
        ("{{ .x ! }}", "'!' is not read here: variables, text, and toJson"),
        ("{{ .x | }}", "is no pipeline"),
        ("{{ .x .y }}", ".x is no function"),
        ("{{ .x | 7 }}", "7 is no function"),
        ("{{ toJson upper .x }}", "is no pipeline"),
        ("{{ .x }} {{ .y", "{{ without an end"),
        ('{"a": {{ indent "2" .x }}}', "indent needs a number"),
        ('{"a": {{ upper .x .x }}}', "upper is not called with 2 values"),
        ('{"a": {{ .n | upper }}}', "upper needs text"),
        ('{"a": "{{ .o }}"}', "an object between quotes"),
    ],
)
def test_what_go_can_and_we_do_not_is_told_with_its_line_and_another_way(text: str, said: str) -> None:
    with pytest.raises(TemplateError) as caught:
        made(text).render({"x": "x", "y": "y", "n": 7, "o": {}}, more_allowed=True)
    assert said in str(caught.value)


def test_text_in_quotes_may_hold_what_ends_an_insertion() -> None:
    text = asking('{{ default "}} {{ `" .x | toJson }}')
    assert "}} {{ `" == made(text).render({})["state"]
    assert "}}" == made(asking('"{{- default `}}` .x -}}"')).render({})["state"]


def test_a_comment_about_go_does_not_make_a_template_of_jinja_one_of_go() -> None:
    assert "a" == made("{# {{ .x }} of old #}" + asking('"{{ x }}"')).render({"x": "a"})["state"]


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("{{ x", {}, "t.json.tmpl, line 1: "),
        ("\n{% iff %}", {}, "t.json.tmpl, line 2: "),
        ("{{ x | nofilter }}", {"x": 1}, "nofilter"),
        ("{{ a }} {{ b }}", {"c": 1}, "needs a, b; given: c"),
        ("{{ ticket }}", {"ticket": "x", "tickets": 1}, "no variable tickets: did you mean ticket?"),
        ("{{ ticket }}", {"ticket": "x", "zzz": 1}, "no variable zzz: it has ticket"),
        ('{"state": {{ x }}}', {"x": "text"}, "line 1: x is text outside of quotes"),
        ('{"a": 1,\n\n "b" 2}', {}, 'in line 3 of what it comes to: "b" 2}'),
        ('{"a": "{{ x }}"}', {"x": [1]}, "line 1: x is a list between quotes"),
        ('{"a": "{{ x }}"}', {"x": None}, "x is null between quotes"),
        ('{"a": {{ x | tojson }}}', {"x": float("nan")}, "cannot be written as JSON"),
        ("[1]", {}, "must come to an object"),
        ("{}", {}, "must come to an object"),
        ("\n{{ x.y.z }}", {"x": {}}, "line 2: "),
        ("{{ x / 0 }}", {"x": 1}, "division by zero"),
        ("{% include 'other' %}", {}, "t.json.tmpl"),
        ("{{ ''.__class__.__mro__ }}", {}, "unsafe"),
        ("{% for a in range(100000) %}{{ x }}" + "y" * 100 + "{% endfor %}", {"x": "y"}, "comes to more"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(TemplateError) as caught:
        made(text).render(given)
    assert said in str(caught.value)
    assert str(caught.value).startswith("t.json.tmpl")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "comes to no YAML"),
        ("a: !!timestamp 2026-11-30", "comes to no YAML: JSON has no word for its date"),
        ("a: .nan", "comes to no YAML: .nan is no number of JSON"),
        ("a: !!python/object:os.system x", "comes to no YAML"),
        ("- a", "must come to an object"),
    ],
)
def test_yaml_that_json_could_not_say_is_refused(text: str, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        made(text, "t.yaml.tmpl").render({})


def test_keys_that_yaml_takes_for_something_else_are_text() -> None:
    body = made("q: {type: noul, criteria: {true: now, false: later}}", "t.yaml.tmpl").render({})
    assert {"true": "now", "false": "later"} == body["questions"]["q"]["criteria"]


def test_questions_alone_are_a_template_too() -> None:
    assert {"questions": {"q": {"type": "noul"}}} == made('{"q": {"type": "noul"}}').render({})


def test_variables_that_have_a_default_may_be_left_out() -> None:
    text = '{"state": "{{ a | default("x") }}{% if b is defined %}b{% endif %}{{ c }}", ' + QUESTIONS + "}"
    template = made(text)
    assert {"a": False, "b": False, "c": True} == {each.name: each.required for each in template.variables}
    assert "xc" == template.render({"c": "c"})["state"]


def test_a_file_is_read_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.json.tmpl"
    file.write_text("\ufeff" + '{"q": {"type": "noul", "instructions": "{{ x }}"}}', "utf-8")
    assert ["x"] == [variable.name for variable in load(str(file)).variables]
    file.write_bytes(b"\xff")
    with pytest.raises(TemplateError, match="not UTF-8"):
        load(file)
    with pytest.raises(TemplateError, match="cannot read"):
        load(tmp_path / "none.json.tmpl")
    (tmp_path / "x.txt.tmpl").write_text("")
    with pytest.raises(TemplateError, match="must be called"):
        load(tmp_path / "x.txt.tmpl")
    with pytest.raises(TemplateError, match="Did you mean incident_triage"):
        load("incident_triag")


def test_the_packaged_ones_say_what_they_are_and_want() -> None:
    assert {"incident_triage", "support_triage", "moderation", "lead_scoring", "document_checks"} == {
        template.name for template in packaged()
    }
    for template in packaged():
        assert template.description
        assert all(variable.description for variable in template.variables)
        body = template.render({each.name: "x" for each in template.variables if each.required})
        json.dumps(body, allow_nan=False)
