"""Masking of passwords: URIs may hold them, and errors and reports repeat URIs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

# The text before the host of a URI, a password with slashes in it as well; of the two slashes a path keeps one.
_CREDENTIALS = re.compile(r"(?<=:/)(/?)(?:[^/\s@'\"]+|[^/\s@'\":]+:[^\s@'\"]+)@")

# The same in a single word, which spaces and quotes do not end.
_CREDENTIALS_OF_WORD = re.compile(r"(?<=:/)(/?)(?:[^/@]+|[^/@:]+:[^@]+)@")

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def without_credentials(text: str) -> str:
    """Return a text with ``…`` for any text before the host of a URI."""
    return _CREDENTIALS.sub(r"\1…@", text)


def command_line(words: Iterable[str]) -> str:
    """Return a command as one line for a POSIX shell, with ``…`` for whatever precedes the host of a URI in it."""
    masked = (_CREDENTIALS_OF_WORD.sub(r"\1…@", word) for word in words)
    return shlex.join(map(printable, masked))


def printable(text: str) -> str:
    """Return a text with ``?`` for what is no character of a line: control codes, and bytes that are not UTF-8."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def without_controls(text: str) -> str:
    """Return a text without what a terminal acts on: control codes other than tab and line feed, and bidi controls."""
    return _CONTROLS.sub("", text)
