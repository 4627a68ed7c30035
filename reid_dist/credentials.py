"""Passwords do not belong into what is told or kept: URIs hold them now and then, and errors repeat what was given."""

from __future__ import annotations

import re

__all__ = ["without_credentials"]

# What stands before the host of a URI, a password with slashes in it as well; of the two slashes a path keeps one.
_CREDENTIALS = re.compile(r"(?<=:/)(/?)(?:[^/\s@'\"]+|[^/\s@'\":]+:[^\s@'\"]+)@")


def without_credentials(text: str) -> str:
    """Return a text with ``…`` for whatever stands before the host of a URI."""
    return _CREDENTIALS.sub(r"\1…@", text)
