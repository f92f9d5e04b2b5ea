"""What is wrong with a template or with what it is given."""

from __future__ import annotations


class TemplateError(Exception):
    """The message says where, what was wrong and what would be right."""
