"""Labels and sets from names of images, block by block: each distinct text is held once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError
from reid_dist.stores.importers.name_layouts.definition import EVALUATED, Coded, NameLayout, label_of_group
from reid_dist.stores.importers.name_layouts.searching import searching
from reid_dist.stores.importers.source import text_rows

_BLOCK_ROWS = 4096
_MOST_SHOWN = 10
_LONGEST_SHOWN = 80
# Twice that of a path, with room for labels beside it.
_LONGEST_TEXT = 8192
_CHARACTER_BYTES = 4


class _Vocabulary(defaultdict[Any, int]):
    """Codes of texts: a new text gets the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.default_factory = self.__len__


def path_blocks(names: NDArray[np.str_]) -> Iterator[tuple[int, list[str]]]:
    """First row and names of consecutive blocks, with ``/`` between the components of a path."""
    for start in range(0, len(names), _BLOCK_ROWS):
        block = names[start : start + _BLOCK_ROWS].tolist()
        if "\\" in "\n".join(block):
            block = [name.replace("\\", "/") for name in block]
        yield start, block


class UnfitNames:
    """Counts names that do not fit and keeps the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, row: int, name: str) -> None:
        """Take the name of a row."""
        self.count += 1
        if len(self._first) < _MOST_SHOWN:
            self._first.append(f"row {row}: {name[:_LONGEST_SHOWN]!r}")

    def shown(self) -> str:
        """Return the first ones, and how many more there are."""
        more = self.count - len(self._first)
        return ", ".join(self._first) + (f" and {more} more" if more else "")


def labels_of_names(names: NDArray[np.str_], layout: NameLayout) -> dict[str, Coded]:
    """Read the labels in names of images, (n,), by what they are: ``pids``, ``camids``, ``columns/NAME``.

    InputError if a name does not fit.
    """
    groups = layout.groups
    vocabularies = [_Vocabulary() for _ in groups]
    codes = [np.empty(len(names), np.int32) for _ in groups]
    unfit = UnfitNames()
    refuse_long(names, "names of images")
    with searching(layout) as search:
        for start, block in path_blocks(names):
            found = search(start, block)
            fitting = [texts for texts in found if texts is not None]
            if len(fitting) < len(block):
                _add_unfit(unfit, start, block, [texts is None or not all(texts) for texts in found])
                continue
            columns = list(zip(*fitting, strict=True))[: len(groups)]
            for column, vocabulary, coded in zip(columns, vocabularies, codes, strict=True):
                numbers = map(vocabulary.__getitem__, column)
                coded[start : start + len(block)] = np.fromiter(numbers, np.int32, len(block))
            if any(None in vocabulary or "" in vocabulary for vocabulary in vocabularies):
                _add_unfit(unfit, start, block, [not all(texts) for texts in zip(*columns, strict=True)])
    if unfit.count:
        raise InputError(
            f"{unfit.count} of {counted(len(names), 'name')} {'does' if unfit.count == 1 else 'do'} not fit the layout "
            f"{layout.name} ({layout.form}): {unfit.shown()}; choose the layout of these names (--layout, see "
            "`reid-dist list layouts`), give --pattern with the groups pid and camid, such as "
            "'(?P<pid>[0-9]+)_c(?P<camid>[0-9]+)', or leave these rows out"
        )
    return {
        label_of_group(group): Coded(_spelled(vocabulary, group, layout), coded)
        for group, vocabulary, coded in zip(groups, vocabularies, codes, strict=True)
    }


def refuse_long(texts: NDArray[np.str_], what: str) -> None:
    """Refuse texts, (n,), beyond `_LONGEST_TEXT`: the time of a pattern may grow with the square of the length."""
    if texts.dtype.itemsize > _LONGEST_TEXT * _CHARACTER_BYTES:
        row = int(np.char.str_len(texts).argmax())
        raise InputError(
            f"{what} are paths, of {_LONGEST_TEXT} characters at most: row {row} holds {len(texts[row])}, "
            f"{str(texts[row])[:_LONGEST_SHOWN]!r}…"
        )


def _add_unfit(unfit: UnfitNames, start: int, block: list[str], is_unfit: list[bool]) -> None:
    for row in np.flatnonzero(is_unfit).tolist():
        unfit.add(start + row, block[row])


def _spelled(vocabulary: Mapping[str, int], group: str, layout: NameLayout) -> NDArray[np.str_]:
    """Texts of a group in the order of their codes, the layout's words as what they denote."""
    words = layout.words.get(group, {})
    return text_rows([words.get(text, text) for text in vocabulary], group)


def sets_by_folder(names: NDArray[np.str_], folders: Mapping[str, str]) -> Coded:
    """Find the set of each image by the folder that it is in; `EVALUATED` where no folder is among those given."""
    sets = list(dict.fromkeys([EVALUATED, *folders.values()]))
    wanted = [(f"/{folder.strip('/')}/", sets.index(name)) for folder, name in folders.items()]
    codes = np.empty(len(names), np.int32)
    known = _SetsOfFolders(wanted)
    for start, block in path_blocks(names):
        inside = [path[: path.rfind("/") + 1] for path in block]
        codes[start : start + len(block)] = np.fromiter(map(known.__getitem__, inside), np.int32, len(block))
    return Coded(text_rows(sets, "sets"), codes)


class _SetsOfFolders(dict[str, int]):
    """Sets by the folder of an image: that of the deepest wanted part of it, and of the longest one of these."""

    def __init__(self, wanted: Sequence[tuple[str, int]]) -> None:
        super().__init__()
        self._wanted = wanted

    def __missing__(self, folder: str) -> int:
        path = f"/{folder}"
        found = [(path.rfind(part) + len(part), len(part), code) for part, code in self._wanted if part in path]
        self[folder] = code = max(found)[2] if found else 0
        return code


def sets_by_label(label: Coded, sets: Mapping[str, str]) -> Coded:
    """Find the set of each row by the texts of a label; `EVALUATED` for texts that are not given."""
    named = list(dict.fromkeys([EVALUATED, *sets.values()]))
    of_text = np.array([named.index(sets.get(text, EVALUATED)) for text in label.texts.tolist()], np.int32)
    return Coded(text_rows(named, "sets"), of_text[label.codes])
