"""JSON of users and of other programs, in which no object has a name twice."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from reid_dist.errors import InputError

_LONGEST_NAME = 80


def parse_json(text: str | bytes, where: str) -> Any:
    """Read JSON; messages call it `where`.

    InputError if it is none, is nested too deeply, or an object has a name twice: the standard reader would keep the
    last one without a word.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise InputError(f"{where}: {twice[:_LONGEST_NAME]!r} occurs twice in one object; keep one of the two")
        return entries

    try:
        return json.loads(text, object_pairs_hook=once)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is not JSON: {error}") from None
