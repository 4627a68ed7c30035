"""Find names of images in the lists of a data set: by hashes in sorted order, 16 bytes a record, then by the text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError
from reid_dist.stores.importers.name_layouts.definition import Records
from reid_dist.stores.importers.name_layouts.reading import UnfitNames, path_blocks

_MOST_COMPONENTS = 64


def records_of_names(names: NDArray[np.str_], records: Records, where: str, *, stems: bool) -> NDArray[np.int64]:
    """Return the record of each name, (n,): of equal paths, or of those that are equal as far as both of them go.

    Names and records may begin with different folders.  They are compared by as many last components as every one of
    them has; with `stems` without the suffix of the file.  InputError if a name has no record, or several that differ.
    """
    if not len(records["image_paths"]):
        raise InputError(f"{where} holds no names of images; give the lists of these images")
    index = _Index(records["image_paths"], _Keys(_MOST_COMPONENTS, stems=stems))
    rows, unfit = index.rows(names, all_or_none=True)
    if unfit.count:
        depth = min(_fewest_components(names), _fewest_components(records["image_paths"]))
        index = _Index(records["image_paths"], _Keys(depth, stems=stems))
        rows, unfit = index.rows(names)
        if unfit.count:
            raise InputError(
                f"{unfit.count} of {counted(len(names), 'name')} {'is' if unfit.count == 1 else 'are'} not in {where}: "
                f"{unfit.shown()}; give the lists of these images, or leave out these rows, or the lists"
            )
    index.refuse_differing(records, rows, where)
    return rows


class _Keys:
    """The part of a path that is compared: its last components."""

    def __init__(self, depth: int, *, stems: bool) -> None:
        self._depth, self._stems = depth, stems

    def of(self, paths: list[str]) -> list[str]:
        keys = [_plain(path) for path in paths]
        if self._depth == 1:
            keys = [key[key.rfind("/") + 1 :] for key in keys]
        elif self._depth < _MOST_COMPONENTS:
            keys = ["/".join(key.rsplit("/", self._depth)[-self._depth :]) for key in keys]
        return [_stem(key) for key in keys] if self._stems else keys


def _plain(path: str) -> str:
    """Return a path from the root, or from here, without its beginning."""
    return path.removeprefix("./").lstrip("/") if path.startswith((".", "/")) else path


def _stem(key: str) -> str:
    place = key.rfind(".")
    return key[:place] if place > key.rfind("/") + 1 else key


def _fewest_components(names: NDArray[np.str_]) -> int:
    return min(min(_plain(path).count("/") for path in block) for _, block in path_blocks(names)) + 1


class _Index:
    """Rows of texts by their keys."""

    def __init__(self, texts: NDArray[np.str_], keys: _Keys) -> None:
        self._texts, self._keys = texts, keys
        hashes = np.empty(len(texts), np.int64)
        for start, found, _ in self._blocks(texts):
            hashes[start : start + len(found)] = found
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]

    def _blocks(self, texts: NDArray[np.str_]) -> Iterator[tuple[int, NDArray[np.int64], list[str]]]:
        """First row, hashes and keys of consecutive blocks."""
        for start, block in path_blocks(texts):
            keys = self._keys.of(block)
            yield start, np.fromiter(map(hash, keys), np.int64, len(keys)), keys

    def _keys_at(self, rows: NDArray[np.int64]) -> list[str]:
        return self._keys.of([text.replace("\\", "/") for text in self._texts[rows].tolist()])

    def rows(self, texts: NDArray[np.str_], *, all_or_none: bool = False) -> tuple[NDArray[np.int64], UnfitNames]:
        """Return the first row with the key of each text, -1 where there is none, and the texts without a row.

        With `all_or_none` the first text without a row is the last one looked for.
        """
        rows, unfit = np.full(len(texts), -1, np.int64), UnfitNames()
        for start, hashes, keys in self._blocks(texts):
            places = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
            found = self._order[places]
            for row, key, there in zip(range(len(keys)), keys, self._keys_at(found), strict=True):
                if key != there:
                    found[row] = self._further(int(hashes[row]), int(places[row]), key)
                    if found[row] < 0:
                        unfit.add(start + row, key)
            rows[start : start + len(keys)] = found
            if all_or_none and unfit.count:
                break
        return rows, unfit

    def _further(self, wanted: int, place: int, key: str) -> int:
        """Return the row of a key among those of one hash, -1 if it has none."""
        while place < len(self._sorted) and self._sorted[place] == wanted:
            if self._keys_at(self._order[place : place + 1]) == [key]:
                return int(self._order[place])
            place += 1
        return -1

    def refuse_differing(self, records: Records, rows: NDArray[np.int64], where: str) -> None:
        """Refuse names that several records have, unless these have the same labels."""
        is_same = self._sorted[1:] == self._sorted[:-1]
        run = np.concatenate([[0], np.cumsum(~is_same)])
        used = np.zeros(len(run), np.bool_)
        run_of_row = np.empty(len(run), np.int64)
        run_of_row[self._order] = run
        used[run_of_row[rows]] = True
        places = np.flatnonzero(is_same & used[run[1:]])
        labels = [values for what, values in records.items() if what != "image_paths"]
        for one, other in zip(self._order[places].tolist(), self._order[places + 1].tolist(), strict=True):
            if all(values[one] == values[other] for values in labels):
                continue
            key, there = self._keys_at(np.array([one, other]))
            if key == there:
                raise InputError(
                    f"{where} has several records of {key!r} that differ, records {one} and {other}; give names with "
                    "the folders that distinguish them, as in the list"
                )


def rows_in_list(names: NDArray[np.str_], listed: NDArray[np.str_], where: str, *, stems: bool) -> NDArray[np.bool_]:
    """Return which of the names, (n,), are in a list; they are compared as in `records_of_names`.

    InputError if a name of the list is not among them.
    """
    if not len(listed):
        raise InputError(f"{where} holds no names of images; give a list with a name a line")
    depth = min(_fewest_components(names), _fewest_components(listed))
    unfit = UnfitNames()
    for keys in (_Keys(_MOST_COMPONENTS, stems=stems), _Keys(depth, stems=stems)):
        _, unfit = _Index(names, keys).rows(listed)
        if not unfit.count:
            rows, _ = _Index(listed, keys).rows(names)
            return rows >= 0
    raise InputError(
        f"{unfit.count} of {counted(len(listed), 'name')} of {where} {'is' if unfit.count == 1 else 'are'} not among "
        f"the names of the features: {unfit.shown()}; give the list of these images, or the names of all of its images"
    )
