"""Errors as the command prints them."""

from __future__ import annotations

from reid_dist.errors import ReidDistError


def in_full(error: ReidDistError) -> str:
    """Message of an error and its details, a line each; none of them may hold another line."""
    lines = [str(error), *error.details]
    assert not any("\n" in line for line in lines)
    return "\n".join(lines)
