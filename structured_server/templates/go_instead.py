"""What Go's templates have and is not read here, and how Jinja writes it."""

from __future__ import annotations

_WRITTEN_OUT = "the text itself, where it is used"
_COMPARED = '{% if name == "x" %}'

INSTEAD = {
    "if": "{% if name %}...{% endif %}",
    "else": "{% else %}",
    "end": "{% endif %} or {% endfor %}",
    "range": "{% for each in names %}...{% endfor %}",
    "with": "{% with x = name %}...{% endwith %}",
    "define": _WRITTEN_OUT,
    "template": _WRITTEN_OUT,
    "block": _WRITTEN_OUT,
    "include": _WRITTEN_OUT,
    "break": "{% if %} inside the loop",
    "continue": "{% if %} inside the loop",
    "$": "{% set x = name %} and {{ x }}",
    "(": "{{ name | first | second }}",
    "and": "{% if a and b %}",
    "or": "{% if a or b %}",
    "not": "{% if not name %}",
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _COMPARED),
    "index": "{{ names[0] }}",
    "len": "{{ names | length }}",
    "join": '{{ names | join(", ") }}',
    "printf": "the text around {{ name }}",
    "print": "{{ name }}",
    "println": "{{ name }}",
    "quote": "{{ name | tojson }}",
    "js": "{{ name }}, which is escaped as it must be",
    "html": "{{ name }}, which is escaped as it must be",
    "replace": '{{ name | replace("old", "new") }}',
    "title": "{{ name | title }}",
    "trunc": "{{ name | truncate(100) }}",
    "nindent": "{{ name }}: values keep their lines without it",
}
"""Words and signs of Go's templates, with Jinja's way of saying them."""
