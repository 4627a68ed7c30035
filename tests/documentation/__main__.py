"""Write the reference as pages: ``python -m tests.documentation FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.documentation.reference import build

if len(sys.argv) != 2:
    sys.exit("usage: python -m tests.documentation FOLDER")
pages = build(Path(sys.argv[1]))
print(f"{len(pages)} pages in {sys.argv[1]}, index.html being the first")
