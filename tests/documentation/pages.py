"""The pages of the checkout, and the fenced blocks in them, each of which a test runs.

The language of a block says how:

* ``bash``: commands, one per line, and ``python``: a snippet.  Both run as they stand, in the order of the page, in a
  folder with the data of the demo (`tests/test_readme.py`).
* ``py`` and ``sh``: code and commands for another program, which run with what that program has
  (`tests/test_recipes.py`).
* ``text``: what a command prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

GUIDES = (
    "own-data",
    "paper-numbers",
    "frameworks",
    "comparing",
    "reranking",
    "thresholds",
    "large-galleries",
    "every-night",
    "training",
)
"""Names of the guides in ``pipelines``, in the order in which they are listed."""

PAGES = (
    "README.md",
    "pipelines/README.md",
    *(f"pipelines/{name}.md" for name in GUIDES),
    "pipelines/conventions.md",
    "cluster_configs/README.md",
    "tests/benchmarks/README.md",
    "reid_dist/README.md",
    "CONTRIBUTING.md",
)
"""Files of all pages, from the root."""

COMMANDS, SNIPPET, EXCERPT, EXCERPT_COMMANDS, PRINTED = "bash", "python", "py", "sh", "text"
LANGUAGES = (COMMANDS, SNIPPET, EXCERPT, EXCERPT_COMMANDS, PRINTED)

_FENCE = re.compile(r"^ *```(.*)$")
_HEADING = re.compile(r"^#+ (.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: file and line of its fence, the heading above it, its language and its lines."""

    page: str
    line: int
    section: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        return [line for line in self.text.splitlines() if line]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(*pages: str) -> Iterator[Block]:
    """Blocks of pages, in their order; a fence that is never closed is an error."""
    for page in pages:
        section, opened, language, lines = "", 0, "", list[str]()
        for number, line in enumerate(read(page).splitlines(), start=1):
            fence = _FENCE.match(line)
            if fence is not None and not opened:
                opened, language, lines = number, fence[1].strip(), []
            elif fence is not None:
                yield Block(page, opened, section, language, "".join(f"{each}\n" for each in lines))
                opened = 0
            elif opened:
                lines.append(line)
            elif (heading := _HEADING.match(line)) is not None:
                section = heading[1]
        if opened:
            raise ValueError(f"{page}, line {opened}: the block is never closed")


def headings(page: str) -> list[str]:
    """Places in a page that a link can lead to, as GitHub names them."""
    found: list[str] = []
    fenced = False
    for line in read(page).splitlines():
        fenced ^= _FENCE.match(line) is not None
        heading = None if fenced else _HEADING.match(line)
        if heading is not None:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            found.append(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found
