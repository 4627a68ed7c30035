"""Features of real models as the oracle's sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.reference import ItemSet


def read_sides(path: Path) -> tuple[ItemSet, ItemSet]:
    """Query and gallery of a file; the one set of a file without sides is both."""
    from scipy.io import loadmat

    if path.suffix == ".npz":
        with np.load(path) as content:
            items = ItemSet(content["features"], content["pids"], None, np.arange(len(content["pids"])))
        return items, items
    content = loadmat(path)
    query, gallery = (
        ItemSet(
            content[f"{side}_f"], *(content[f"{side}_{name}"].ravel().astype(np.int64) for name in ("label", "cam"))
        )
        for side in ("query", "gallery")
    )
    return query, gallery
