"""What tests read in the help of a command."""

from __future__ import annotations


def examples(text: str, name: str) -> list[str]:
    """The examples in the help of a command."""
    return [line.strip() for line in text.splitlines() if line.startswith(f"    reid-dist {name} ")]
