"""JSON of users and of other programs: few levels, so that whatever walks it ends, and no name twice in an object."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from reid_dist.errors import InputError

_DEEPEST: Final = 64
_LONGEST_NAME: Final = 80


class NotJsonError(InputError):
    """A text that is no JSON, is nested too deeply or has a name twice; the message holds the reason alone."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text of at most 64 levels; NotJsonError for any other.

    An object with a name twice is refused: the standard reader would keep the last one without a word.
    """
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except InputError:
        raise
    except RecursionError:
        raise NotJsonError("it is nested too deeply") from None
    except ValueError as error:
        raise NotJsonError(f"it is not JSON: {' '.join(str(error).split())}") from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [child for each in level for child in _children(each) if isinstance(child, dict | list)]
        if not level:
            return value
    raise NotJsonError("it is nested too deeply")


def json_of(text: str | bytes, where: str) -> Any:
    """Return the value of a JSON text as `parse_json` does; the InputError for any other begins with `where`."""
    try:
        return parse_json(text)
    except NotJsonError as error:
        raise InputError(f"{where}: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise NotJsonError(f"{twice[:_LONGEST_NAME]!r} occurs twice in one object; keep one of the two")
    return entries


def _children(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
