"""Write the reference as pages, or run the notebook: ``python -m tests.documentation reference FOLDER``, ``… tour``."""

from __future__ import annotations

import sys
from pathlib import Path

match sys.argv[1:]:
    case ["reference", folder]:
        from tests.documentation.reference import build

        print(f"{len(build(Path(folder)))} pages in {folder}, index.html being the first")
    case ["tour"]:
        from tests.documentation.tour import NOTEBOOK, store

        store()
        print(f"{NOTEBOOK.relative_to(Path.cwd())} was run, and has its outputs")
    case _:
        sys.exit("usage: python -m tests.documentation reference FOLDER, or: python -m tests.documentation tour")
