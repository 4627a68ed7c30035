"""``.pth`` and ``.pt`` without torch, and without running anything that is in them.

Such a file is a zip with a pickle that describes tensors and one uncompressed member per storage.  The pickle is read
as data (`reid_dist.stores.importers.pickled`); what it calls is recorded and not called.  Tensors, numpy arrays of
plain dtypes and lists become arrays, and all else is left out with its reason.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.names import is_customary
from reid_dist.stores.importers.pickled import Entries, Pickled, read_pickle
from reid_dist.stores.importers.pickled_arrays import BFLOAT16, Refused, Tensor, interpret
from reid_dist.stores.importers.source import (
    FORMATS,
    PICKLE_ADVICE,
    Format,
    HeldRows,
    RowArray,
    Source,
    members_of,
    starts_as_pickle,
    text_rows,
    zip_names,
)
from reid_dist.stores.importers.tensor_rows import Tensors

_DEEPEST = 8
_MOST_POSITIONS = 10
"""A longer tuple is a list of rows and not several arrays."""
_FEATURES = "features"
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"


@dataclass(frozen=True)
class _NamedRows:
    """A dictionary from file name to row, as open-reid saves it: vectors, hence features, or single numbers.

    Its own name is empty if it is the file itself.
    """

    name: str
    rows: Mapping[str, Any]
    is_vectors: bool


def _named_rows(name: str, pairs: Mapping[str, Any]) -> _NamedRows | None:
    """Recognize such a dictionary: values of one shape, and no key that customarily names an array."""
    shapes = {_shape(value) for value in pairs.values()}
    shape = shapes.pop() if len(shapes) == 1 else None
    if shape is None or len(shape) > 1 or (not shape and not all("." in key for key in pairs)):
        return None
    return None if any(is_customary(key) for key in pairs) else _NamedRows(name, pairs, bool(shape))


def _shape(value: Any) -> tuple[int, ...] | None:
    """Shape of a vector of floating numbers, or of a number; None for anything else."""
    if isinstance(value, Tensor):
        floating = value.storage.code == BFLOAT16 or value.storage.code.startswith("f")
        return value.shape if floating or not value.shape else None
    if isinstance(value, np.ndarray):
        return value.shape if value.dtype.kind == "f" or not value.shape else None
    return () if type(value) in (int, float) else None


def _named_arrays(named: list[_NamedRows], tensors: Tensors) -> dict[str, RowArray | str]:
    """Make features with the names of their rows, and labels under the same names in the same order."""
    found: dict[str, RowArray | str] = {}
    orders: list[list[str]] = []
    vectors = [each for each in named if each.is_vectors]
    for each in vectors:
        # The features of ``{"query": {name: tensor}}`` are ``query_features``; of ``{"query_features": …}`` likewise.
        own = is_customary(each.name)
        alone = "" if len(vectors) == 1 else each.name
        features = each.name if own else "_".join(part for part in (alone, _FEATURES) if part)
        prefix = each.name[: each.name.rfind("_") + 1] if own else features.removesuffix(_FEATURES)
        rows = tensors.stacked(list(each.rows.values()))
        if rows is None:
            found[features] = "a dictionary of tensors of differing kinds"
            continue
        found[features] = rows
        found[f"{prefix}image_paths"] = HeldRows(text_rows(list(each.rows), "names"))
        orders.append(list(each.rows))
    for each in named:
        if each.is_vectors:
            continue
        order = next((names for names in orders if each.rows.keys() == set(names)), list(each.rows))
        rows = tensors.stacked([each.rows[name] for name in order])
        found[each.name or "values"] = rows or "a dictionary of numbers of differing kinds"
    return found


class _Walk:
    """Walks through nested dictionaries and tuples: ``{"query": {"pids": …}}`` becomes ``query_pids``.

    Containers may be shared, so that few bytes could describe more entries than there is time for; a file of torch.save
    has no more of them than opcodes.
    """

    def __init__(self, content: Pickled) -> None:
        self._left = 4 * content.n_opcodes
        self.leaves: dict[str, Any] = {}
        self.named: list[_NamedRows] = []
        self._visit(content.value, "", 0)

    def _visit(self, given: Any, name: str, depth: int) -> None:
        value = interpret(given)
        if (
            isinstance(value, list)
            and value
            and all(isinstance(interpret(item), Entries) for item in self._counted(value))
        ):
            value = self._transposed(value) or value
        if isinstance(value, Entries):
            self._visit_entries(value, name, depth)
        elif isinstance(value, tuple) and len(value) <= _MOST_POSITIONS and not _are_scalars(value):
            positions = Entries([(f"item{at}", item) for at, item in enumerate(value)])
            self._visit_entries(positions, name, depth)
        else:
            # A list is looked through item by item when its rows are made.
            self._count(len(value) if isinstance(value, list | tuple) else 1)
            self.leaves[name or "features"] = value

    def _visit_entries(self, entries: Entries, name: str, depth: int) -> None:
        if depth == _DEEPEST:
            self.leaves[name] = Refused(f"nested more than {_DEEPEST} deep")
            return
        pairs = dict(self._pairs(entries))
        named = _named_rows(name, pairs)
        if named is not None:
            self.named.append(named)
            return
        for key, value in pairs.items():
            self._visit(value, f"{name}_{key}" if name else key, depth + 1)

    def _pairs(self, entries: Entries) -> Iterator[tuple[str, Any]]:
        self._count(len(entries.pairs))
        for key, value in entries.pairs:
            if not isinstance(key, str | int | float) or (isinstance(key, int) and abs(key) >= 2**63):
                continue
            yield str(key), interpret(value)

    def _counted(self, items: list[Any]) -> list[Any]:
        self._count(len(items))
        return items

    def _transposed(self, records: list[Any]) -> Entries | None:
        """A list of dictionaries with the same keys as one dictionary of lists; None where keys differ."""
        rows = [dict(self._pairs(interpret(record))) for record in records]
        if any(row.keys() != rows[0].keys() for row in rows):
            return None
        return Entries([(key, [row[key] for row in rows]) for key in rows[0]])

    def _count(self, entries: int) -> None:
        self._left -= entries + 1
        if self._left < 0:
            raise StoreError("the file describes more entries than it holds; it was not written by torch.save")


def _are_scalars(values: tuple[Any, ...]) -> bool:
    return all(isinstance(interpret(value), str | int | float) for value in values)


def _open_torch(path: Path) -> Source:
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            begins = file.read(len(_LEGACY))
        if starts_as_pickle(begins) and begins != _LEGACY:
            raise InputError(f"{path} {PICKLE_ADVICE}")
        raise StoreError(f"{path} is not a zip archive; files of torch before 1.6 must be saved again by a newer one")
    with zipfile.ZipFile(path) as archive:
        members = members_of(archive)
        program = next((name for name in members if name.endswith("data.pkl")), None)
        if program is None:
            raise StoreError(f"{path} is a zip archive without data.pkl; it was not written by torch.save")
        if members[program].compress_type != zipfile.ZIP_STORED:
            raise StoreError(f"{path}: {program} is compressed, which torch never does")
        root = program.removesuffix("data.pkl")
        order = archive.read(root + "byteorder").decode() if root + "byteorder" in members else "little"
        content = read_pickle(archive.read(program), str(path))
    tensors = Tensors(path, members, root, ">" if order == "big" else "<")
    whole = interpret(content.value)
    if isinstance(whole, Refused):
        raise InputError(f"{path} cannot be read: it is {whole.reason}")
    walk = _Walk(content)
    found = _named_arrays(walk.named, tensors)
    for name, value in walk.leaves.items():
        made = tensors.rows_of(value)
        if name not in found or not isinstance(made, str):
            found[name] = made
    numbers = {name: tensors.number_of(value) for name, value in walk.leaves.items()}
    return Source.of(str(path), found, {name: number for name, number in numbers.items() if number is not None})


FORMATS.register(
    Format(
        "torch",
        "tensors and numpy arrays of torch.save, also {file name: tensor}; read as data, nothing is unpickled",
        "torch.save since 1.6",
        (".pth", ".pt"),
        _open_torch,
        sniff=lambda path: any(name.endswith("data.pkl") for name in zip_names(path)),
    )
)
