"""Make documents: ``python -m tests.documentation reference FOLDER``, ``… tour`` or ``… picture``.

They are the reference as pages, the notebook `pipelines/tour.ipynb` with its outputs, and the picture in the README.
"""

from __future__ import annotations

import sys
from pathlib import Path

match sys.argv[1:]:
    case ["reference", folder]:
        from tests.documentation.reference import build

        print(f"{len(build(Path(folder)))} pages in {folder}, index.html being the first")
    case ["tour"]:
        from tests.documentation import tour

        tour.store()
        print(f"{tour.NOTEBOOK} was run, and has its outputs")
    case ["picture"]:
        from tests.documentation import picture

        picture.store()
        print(f"{picture.PICTURE} was made")
    case _:
        sys.exit("usage: python -m tests.documentation reference FOLDER | tour | picture")
