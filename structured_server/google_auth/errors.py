"""There is no token."""

from __future__ import annotations


class AuthError(Exception):
    """The message says what was tried, why each failed, and which command to run next. It holds no token."""
