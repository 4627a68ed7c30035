"""Make documents: ``python -m tests.documentation DIR``, ``… conventions``, ``… tour`` or ``… picture``.

They are README, guides and reference as pages in DIR, the page `pipelines/conventions.md`, the notebook
`pipelines/tour.ipynb` with its outputs, and the picture in the README.
"""

from __future__ import annotations

import sys
from pathlib import Path

match sys.argv[1:]:
    case ["conventions"]:
        from tests.documentation import registries

        registries.store()
        print(f"{registries.PAGE} was made")
    case ["tour"]:
        from tests.documentation import tour

        tour.store()
        print(f"{tour.NOTEBOOK} was run, and has its outputs")
    case ["picture"]:
        from tests.documentation import picture

        picture.store()
        print(f"{picture.PICTURE} was made")
    case [folder] if not folder.startswith("-"):
        from tests.documentation.reference import build

        print(f"{len(build(Path(folder)))} pages in {folder}, index.html being the first")
    case _:
        sys.exit("usage: python -m tests.documentation DIR | conventions | tour | picture")
