"""What ends a bulk run early, for people to read.

BulkError
├── BadInput       a file, a column or an option cannot be used as it is
├── Changed        the output was made from another input, with other questions or other settings
├── OtherNumbers   the server's answers are not comparable with those already in the output
├── ServerFailed   the server cannot be reached, or fails on everything
└── KeyRefused     the server lets nobody in with this key
"""

from __future__ import annotations


class BulkError(Exception):
    """The base of all; the message says what was wrong and what would be right."""


class BadInput(BulkError):
    """A file, a column or an option cannot be used as it is."""


class Changed(BulkError):
    """The output was made from another input, with other questions or with other settings."""


class OtherNumbers(BulkError):
    """The server's answers are not comparable with those already in the output."""


class ServerFailed(BulkError):
    """The server cannot be reached, or fails on everything."""


class KeyRefused(BulkError):
    """The server lets nobody in with this key."""
