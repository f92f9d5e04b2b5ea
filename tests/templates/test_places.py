"""Values stay themselves wherever a template has them, and can never become its syntax."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structured_server.templates import TemplateError
from structured_server.templates.page import BARE, BEGIN, END
from tests.templates.test_templates import asking, json_values, made, texts

YAML_PLACES = {
    "plain": ("{{ x }}", "{}"),
    "single quotes": ("'<{{ x }}>'", "<{}>"),
    "double quotes": ('"<{{ x }}>"', "<{}>"),
    "in a flow": ("[a, '{{ x }}']", ["a", "{}"]),
    "kept lines": ("|\n  Ticket:\n  {{ x }}\n", "Ticket:\n{}\n"),
    "folded lines": (">-\n  {{ x }}\n", "{}"),
    "amid plain text": ("about {{ x }} again", "about {} again"),
    "indented": ("|-\n{{ x | indent(2, true) }}\n", "{}"),
}
QUESTION = "\nquestions: {q: {type: noul}}"


def with_value(expected: Any, value: str) -> Any:
    """Return what is expected, with the value in its place."""
    if isinstance(expected, list):
        return [with_value(each, value) for each in expected]
    return expected.replace("{}", value)


@pytest.mark.parametrize("place", YAML_PLACES)
@given(value=texts | st.sampled_from(["b', evil: 'c", "x\nquestions: {}", f"{BEGIN}0{END}", f"{BARE}0{END}"]))
def test_any_text_is_that_text_wherever_yaml_may_have_it(place: str, value: str) -> None:
    written, expected = YAML_PLACES[place]
    template = made(f"state: {written}{QUESTION}", "t.yaml.tmpl")
    assert {"state": with_value(expected, value), "questions": {"q": {"type": "noul"}}} == template.render(
        {"x": value}
    )


@given(value=json_values)
def test_what_stands_alone_in_yaml_is_itself_whatever_it_is(value: Any) -> None:
    body = made("state: {{ x }}" + QUESTION, "t.yaml.tmpl").render({"x": value})
    assert value == body["state"]
    assert type(value) is type(body["state"])


@given(value=json_values.filter(lambda value: not isinstance(value, str)))
def test_what_is_no_text_stands_outside_of_quotes_in_json_as_it_is(value: Any) -> None:
    assert value == made(asking("{{ x }}")).render({"x": value})["state"]


@pytest.mark.parametrize("value", ["4", "-0.5", "1e3", "true", "null"])
def test_text_of_one_number_or_word_may_stand_outside_of_quotes_in_json(value: str) -> None:
    """As flags and columns give them: -v samples=4."""
    for place in ("{{ x }}", "{{ .x }}"):
        assert json.loads(value) == made(asking(place)).render({"x": value})["state"]


@pytest.mark.parametrize("value", ["", " 4", "04", "4, 5", "[]", '"a"', 'x", "y": "z', "NaN", "١"])
def test_other_text_outside_of_quotes_is_refused_in_json(value: str) -> None:
    with pytest.raises(TemplateError, match="text outside of quotes"):
        made(asking("{{ x }}")).render({"x": value})


@given(key=texts)
def test_keys_may_be_values(key: str) -> None:
    for text, name in (
        (asking('{"{{ x }}": 1}'), "t.json.tmpl"),
        ("state: {'{{ x }}': 1}" + QUESTION, "t.yaml.tmpl"),
        ("state: {{ '{' }}{{ x }}: 1}" + QUESTION, "t.yaml.tmpl"),
    ):
        assert {key: 1} == made(text, name).render({"x": key})["state"]


@given(value=json_values)
def test_json_between_quotes_is_its_text(value: Any) -> None:
    state = made(asking('"<{{ x | tojson }}>"')).render({"x": value})["state"]
    assert value == json.loads(state.removeprefix("<").removesuffix(">"))


@given(labels=st.lists(texts, max_size=4))
def test_loops_write_lists_with_commas_between(labels: list[str]) -> None:
    for place in ('"{{ each }}"', "{{ each | tojson }}"):
        text = asking("[{% for each in xs %}" + place + '{{ "," if not loop.last }}{% endfor %}]')
        assert labels == made(text).render({"xs": labels})["state"]


def test_a_field_is_a_field_whatever_it_is_called() -> None:
    body = made(asking('"{{ x.items }} {{ x.keys }}"')).render({"x": {"items": 3, "keys": "k"}})
    assert "3 k" == body["state"]


def test_what_yaml_1_1_took_for_something_else_is_text() -> None:
    criteria = "{yes: null, no: null, on: 12:30, 010: 2026-11-30, true: 1e3}"
    body = made("q: {type: choice, criteria: " + criteria + "}", "t.yaml.tmpl").render({})
    assert {"yes": None, "no": None, "on": "12:30", "010": "2026-11-30", "true": 1000.0} == body["questions"][
        "q"
    ]["criteria"]


def test_yaml_may_refer_to_what_it_has_said() -> None:
    text = "a: &a {type: noul, instructions: '{{ x }}'}\nb: {<<: *a, threshold: 0.3}\nc: *a"
    questions = made(text, "t.yaml.tmpl").render({"x": "So?"})["questions"]
    asked = {"type": "noul", "instructions": "So?"}
    assert {"a": asked, "b": {**asked, "threshold": 0.3}, "c": asked} == questions


def test_rendering_again_gives_another_body() -> None:
    """What is kept between renderings is never handed out."""
    template = made(asking('["{{ x }}"]'))
    first = template.render({"x": "a"})
    first["state"].append("b")
    first["questions"]["q"]["type"] = "score"
    assert {"state": ["c"], "questions": {"q": {"type": "noul", "instructions": "So?"}}} == template.render(
        {"x": "c"}
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n{% set g %}{{ x }}{% endset %}", "line 2: `set without =` is not read here"),
        ("{% macro m() %}{% endmacro %}", "line 1: `macro` is not read here"),
        ("{% filter upper %}{{ x }}{% endfilter %}", "`filter` is not read here"),
        ("{% include 'a' %}", "`include` is not read here: a template is one file"),
        ("{{ x.strip() }}", "strip() is not called here: use a filter"),
        ("{{ lipsum() }}", "lipsum() is not called here"),
        ("{{ x | safe }}", "No filter named 'safe' is read here. There are abs"),
        ("{{ x | center(10000000000) }}", "No filter named 'center'"),
        ("{{ x * 10000000000 }}", "* is for numbers only"),
        ("{{ '%9999999999d' % 1 }}", "% is for numbers only"),
        ("{{ 9 ** 9 ** 9 }}", "`**` is not read here"),
        ("{{ x | indent(9999999999) }}", "indent needs a number of spaces, at most 100"),
        ("{{ x | indent(2) | upper }}", "indent must come last"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deep"),
        ("{{ " + "9" * 5000 + " }}", "t.json.tmpl"),
        ("[" * 100_000, "comes to no JSON: it is nested too deep"),
        (asking("NaN"), "NaN is no number of JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"a": 1, "{{ x }}": 2}', "line 1: x makes the key 'a' stand twice"),
        ("{ {{ x }}: 1}", "line 1: x is a key outside of quotes"),
        ('{"state": "{{ x }}" "{{ y }}"}', 'in line 1 of what it comes to: {"state": "{{ x }}" "{{ y }}"}'),
        (
            '{"state": "x", "question": {}}',
            "with `questions`, or to questions by id; it has state, question.",
        ),
        ('{"questions": []}', "must come to an object with `questions`"),
        (f'{{"a": "{BEGIN}0{END}"}}', "the characters U+E000 to U+E002"),
        ("{{ o.b }}", "there is no b in an object that has c"),
    ],
)
def test_what_could_go_wrong_unseen_is_refused(text: str, said: str) -> None:
    with pytest.raises(TemplateError) as caught:
        made(text).render({"x": "a", "y": "b", "o": {"c": 1}}, more_allowed=True)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "the key 'a' stands twice in an object, in line 3"),
        ("? [a]\n: b", "a key must be text, in line 1"),
        ("a: &a [*a]", "comes to no YAML"),
        (
            "\n".join(f"k{n}: &k{n} [{', '.join(['*k' + str(n - 1)] * 9) if n else 'x'}]" for n in range(9)),
            "more than 100000 values",
        ),
        ("a: !!binary aGk=", "JSON has no word for its bytes"),
        ("a: !!float b", "comes to no YAML"),
        ("a: \x00", "U+0000 may not stand in it"),
        ("a: '{{ x }}\n", "comes to no YAML: found unexpected end of stream, in line 2"),
    ],
)
def test_yaml_that_could_go_wrong_unseen_is_refused(text: str, said: str) -> None:
    with pytest.raises(TemplateError) as caught:
        made(text, "t.yaml.tmpl").render({"x": "a"}, more_allowed=True)
    assert said in str(caught.value)


def test_half_a_character_is_refused_before_it_is_sent() -> None:
    for value in ("\ud800", ["\ud800"]):
        with pytest.raises(TemplateError, match="half a character"):
            made(asking("{{ x | tojson }}")).render({"x": value})


PARTS = st.sampled_from(
    [
        *"{}[]():,.|'\"\n -#",
        "{{",
        "}}",
        "{%",
        "%}",
        "{{ x }}",
        "{{ .x",
        "if",
        "for a in x",
        "end",
        "endif",
        "x",
        "/*",
        "*/",
    ]
)


@pytest.mark.parametrize("name", ["t.json.tmpl", "t.yaml.tmpl"])
@given(text=st.lists(PARTS, max_size=12).map("".join), value=json_values)
def test_whatever_a_file_holds_there_is_a_body_or_a_template_error(name: str, text: str, value: Any) -> None:
    with suppress(TemplateError):
        assert made(text, name).render({"x": value}, more_allowed=True)["questions"]
