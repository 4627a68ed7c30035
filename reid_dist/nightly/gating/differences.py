"""In what two entries differ, in words: where to look when a figure moved, or why it cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reid_dist.nightly.history.values import Entry
from reid_dist.reports.words import flatten

__all__ = ["PROSE", "differing", "job_differences", "listed", "place_differences"]

PROSE: Final = frozenset({"summary", "source", "definition"})
"""What a description says about itself; another wording is not another job."""

_MOST_NAMED: Final = 6


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Name what differs, as ``k1 20, then 25``; names of nested values are joined by dots."""
    near, far = dict(flatten(before)), dict(flatten(after))
    return [
        f"{name} {near.get(name, 'absent')}, then {far.get(name, 'absent')}"
        for name in dict.fromkeys([*near, *far])
        if near.get(name) != far.get(name)
    ]


def job_differences(before: Entry, after: Entry) -> list[str]:
    """In what two jobs differ; the prose only where nothing else does."""
    found = differing(before.conventions, after.conventions)
    return [text for text in found if text.split(" ")[0].rpartition(".")[2] not in PROSE] or found


def place_differences(before: Entry, after: Entry) -> list[str]:
    """In which versions, commits and machines two entries differ."""
    found = differing(before.environment, after.environment) + differing(before.machine, after.machine)
    return list(dict.fromkeys(found))


def listed(differences: list[str]) -> str:
    """Put differences into one phrase; a long list is cut, and says so."""
    named = "; ".join(differences[:_MOST_NAMED])
    more = len(differences) - _MOST_NAMED
    return f"{named}; and {more} more" if more > 0 else named
