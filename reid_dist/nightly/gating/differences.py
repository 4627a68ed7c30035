"""Differences of two entries as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reid_dist.core.formatting import first_few
from reid_dist.nightly.history.values import Entry
from reid_dist.reports.words import flatten

PROSE: Final = frozenset({"summary", "source", "definition"})
"""Fields of a description about itself; another wording is not another job."""

_MOST_NAMED: Final = 6


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return differences as ``k1 20, then 25``; names of nested values are joined by dots."""
    old, new = dict(flatten(before)), dict(flatten(after))
    return [
        f"{name} {old.get(name, 'absent')}, then {new.get(name, 'absent')}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def job_differences(before: Entry, after: Entry) -> list[str]:
    """Return differences of two jobs; in prose only where nothing else differs."""
    found = differing(before.conventions, after.conventions)
    return [text for text in found if text.split(" ")[0].rpartition(".")[2] not in PROSE] or found


def place_differences(before: Entry, after: Entry) -> list[str]:
    """Return differences of versions, commits and machines."""
    found = differing(before.environment, after.environment) + differing(before.machine, after.machine)
    return list(dict.fromkeys(found))


def listed(differences: list[str]) -> str:
    """Return differences as one phrase: the first six and the number of the others."""
    return first_few(differences, _MOST_NAMED, "; ")
