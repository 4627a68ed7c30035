"""Foreign texts in GitHub-flavoured Markdown."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable
from typing import Final

from reid_dist.core.credentials import without_controls

# Unquoted characters of an address.
_ADDRESS: Final = "/:?#@!$&'()*+,;=%~"

# Inline markup of Markdown; an underscore between two words is none.
_MARKUP: Final = re.compile(r"[\\`*\[\]|~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")


def escaped(text: str) -> str:
    """Return a text as one escaped line of Markdown without control codes."""
    flat = " ".join(without_controls(text).split())
    marked = _MARKUP.sub(lambda found: f"\\{found[0]}", flat)
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def linked(markdown: str, address: str) -> str:
    """Return Markdown as a link to an address; as it is for an empty one."""
    return f"[{markdown}](<{urllib.parse.quote(address, safe=_ADDRESS)}>)" if address else markdown


def piped(cells: Iterable[str]) -> str:
    """Return one row of a table."""
    return f"| {' | '.join(cells)} |"
