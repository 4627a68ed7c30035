"""JSON of others: one line about what is wrong with it, and few levels, so that whatever walks it does not end."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from reid_dist.errors import InputError

_DEEPEST: Final = 64


class NotJsonError(InputError):
    """A text that is no JSON, or is nested too deeply; the message holds the reason alone."""


def parse_json(text: str | bytes, *, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the value of a JSON text of at most 64 levels; NotJsonError for any other."""
    try:
        value = json.loads(text, object_pairs_hook=object_pairs_hook)
    except InputError:
        raise
    except RecursionError:
        raise NotJsonError("it is nested too deeply") from None
    except ValueError as error:
        raise NotJsonError(" ".join(str(error).split())) from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [child for each in level for child in _children(each) if isinstance(child, dict | list)]
        if not level:
            return value
    raise NotJsonError("it is nested too deeply")


def _children(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
