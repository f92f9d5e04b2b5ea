"""Templates: questions and state in one file, with places for what changes."""

from structured_server.templates.errors import TemplateError
from structured_server.templates.template import Template, Variable, load, packaged, parse

__all__ = ["Template", "TemplateError", "Variable", "load", "packaged", "parse"]
