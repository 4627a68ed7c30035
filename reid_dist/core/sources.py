"""Identity of the code of this package: the version, and a digest of the sources."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]


@cache
def sources_digest() -> str:
    """SHA-256 over path and content of every ``.py`` file of the package, as hexadecimal digits; once per process."""
    found = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(_PACKAGE).as_posix()} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()
