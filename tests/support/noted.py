"""Findings among the notes of a result, by their codes."""

from __future__ import annotations

from typing import Any

from reid_dist.core.findings import Finding


def codes(found: Any) -> list[str]:
    """Codes of all notes, in order."""
    return [note.code for note in found.notes]


def noted(found: Any, *wanted: str) -> list[Finding]:
    """All notes of some codes."""
    return [note for note in found.notes if note.code in wanted]


def values_of(found: Any, code: str) -> dict[str, Any]:
    """Values of the one note of a code."""
    (note,) = noted(found, code)
    return dict(note.values)


def texts_of_inputs(found: Any) -> list[str]:
    """Changes of values that the sets of a run record."""
    return [note.values["text"] for note in noted(found, "input")]
