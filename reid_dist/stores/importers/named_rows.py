"""Dictionaries from file name to row, as open-reid and cluster-contrast save them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reid_dist.stores.importers.names import is_customary
from reid_dist.stores.importers.pickled_arrays import BFLOAT16, Tensor
from reid_dist.stores.importers.source import HeldRows, RowArray, text_rows

_FEATURES = "features"


@dataclass(frozen=True)
class NamedRows:
    """A dictionary whose keys name rows: vectors, hence features, or single numbers; its own name may be empty."""

    name: str
    rows: Mapping[str, Any]
    is_vectors: bool

    @classmethod
    def of(cls, name: str, pairs: Mapping[str, Any]) -> NamedRows | None:
        """Recognize such a dictionary: values of one shape, and no key that customarily names an array."""
        shapes = {_shape(value) for value in pairs.values()}
        shape = shapes.pop() if len(shapes) == 1 else None
        if shape is None or len(shape) > 1 or (not shape and not _names_files(pairs)):
            return None
        if any(is_customary(key) for key in pairs):
            return None
        return cls(name, pairs, bool(shape))


def _shape(value: Any) -> tuple[int, ...] | None:
    """Shape of a vector of floating numbers, or of a number; None for anything else."""
    if isinstance(value, Tensor):
        floating = value.storage.code == BFLOAT16 or value.storage.code.startswith("f")
        return value.shape if floating or not value.shape else None
    if isinstance(value, np.ndarray):
        return value.shape if value.dtype.kind == "f" or not value.shape else None
    return () if type(value) in (int, float) else None


def _names_files(pairs: Mapping[str, Any]) -> bool:
    return all("." in key for key in pairs)


def add_named_rows(
    found: list[NamedRows],
    stack: Callable[[list[Any]], RowArray | None],
    arrays: dict[str, RowArray],
    refused: dict[str, str],
) -> None:
    """Add features with the names of their rows, and labels under the same names in the same order."""
    orders: list[list[str]] = []
    vectors = [each for each in found if each.is_vectors]
    for each in vectors:
        # The features of ``{"query": {name: tensor}}`` are ``query_features``; of ``{"query_features": …}`` likewise.
        own = is_customary(each.name)
        alone = "" if len(vectors) == 1 else each.name
        features = each.name if own else "_".join(part for part in (alone, _FEATURES) if part)
        prefix = each.name[: each.name.rfind("_") + 1] if own else features.removesuffix(_FEATURES)
        rows = stack(list(each.rows.values()))
        if rows is None:
            refused[features] = "a dictionary of tensors of differing kinds"
            continue
        arrays[features] = rows
        arrays[f"{prefix}image_paths"] = HeldRows(text_rows(list(each.rows), "names"))
        orders.append(list(each.rows))
    for each in found:
        if each.is_vectors:
            continue
        order = next((names for names in orders if each.rows.keys() == set(names)), list(each.rows))
        rows = stack([each.rows[name] for name in order])
        if rows is None:
            refused[each.name or "values"] = "a dictionary of numbers of differing kinds"
        else:
            arrays[each.name or "values"] = rows
