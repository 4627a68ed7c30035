"""Errors as the command prints them."""

from __future__ import annotations

from reid_dist.errors import ReidDistError


def in_full(error: ReidDistError) -> str:
    """Message of an error and its details, a line each; none of them may hold another line."""
    lines = [str(error), *error.details]
    assert not any("\n" in line for line in lines)
    return "\n".join(lines)


def printed_error(stderr: str) -> str:
    """The one error at the end of what a command wrote to standard error: a line, and its indented details."""
    lines = stderr.rstrip().splitlines()
    (start,) = (at for at, line in enumerate(lines) if line.startswith("Error: "))
    assert all(line.startswith("  ") for line in lines[start + 1 :]), stderr
    return "\n".join(lines[start:])
