"""Labels by a layout: in the names of images, and in text lists with a name or a line of the layout for each image.

Names are read block by block, and each distinct text is held once.  Patterns of a user are searched in a process of its
own, since some never end on some texts: an expression with a repetition within a repetition may try more ways to split
a text than there is time for, and keeps all threads of its process waiting meanwhile; only a signal to the main thread
ends it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError, RunFailedError
from reid_dist.stores.importers import search_process
from reid_dist.stores.importers.label_tables import EVALUATED, Coded, Column, LabelTable, UnfitNames, path_blocks
from reid_dist.stores.importers.name_layouts import NameLayout, label_of_group
from reid_dist.stores.importers.search_process import receive, send
from reid_dist.stores.importers.source import text_rows
from reid_dist.stores.importers.text_files import file_of_labels, read_column, read_names

_LIMIT_S: Final = 10.0
"""Seconds of computing for one block of names, which usually takes some milliseconds."""

_LONGEST_SHOWN: Final = 80
# Twice that of a path, with room for labels beside it.
_LONGEST_TEXT: Final = 8192
_CHARACTER_BYTES: Final = 4
_BLOCK_LINES: Final = 4096
_BETWEEN, _DIGIT = re.compile(r"[\s;,]"), re.compile("[0-9]")

Groups: TypeAlias = tuple[Any, ...] | None
"""Texts of the groups of a layout in a name, and of the whole match; None for a name that does not fit."""

Search: TypeAlias = Callable[[int, list[str]], list[Groups]]
"""Searches consecutive names, of which the first one is in the given row."""

# ---- names -----------------------------------------------------------------------------------------------------------


def labels_of_names(names: NDArray[np.str_], layout: NameLayout) -> dict[str, Coded]:
    """Read the labels in names of images, (n,), by what they are: ``pids``, ``camids``, ``columns/NAME``.

    InputError if a name does not fit.
    """
    groups = layout.groups
    vocabularies = [_vocabulary() for _ in groups]
    codes = [np.empty(len(names), np.int32) for _ in groups]
    unfit = UnfitNames()
    _refuse_long(names, "names of images")
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
            f"{layout.name}; choose another --layout, give a --pattern, or leave these rows out",
            details=(
                unfit.shown(),
                f"{layout.name}: {layout.form}; others: reid-dist list layouts",
                "a pattern has the groups pid and camid: --pattern '(?P<pid>[0-9]+)_c(?P<camid>[0-9]+)'",
            ),
        )
    return {
        label_of_group(group): Coded(text_rows(_spelled(vocabulary, group, layout), group), coded)
        for group, vocabulary, coded in zip(groups, vocabularies, codes, strict=True)
    }


def _vocabulary() -> dict[Any, int]:
    """Codes of texts: a new text gets the next one."""
    vocabulary = defaultdict[Any, int]()
    vocabulary.default_factory = vocabulary.__len__
    return vocabulary


def _add_unfit(unfit: UnfitNames, start: int, block: list[str], is_unfit: list[bool]) -> None:
    for row in np.flatnonzero(is_unfit).tolist():
        unfit.add(start + row, block[row])


def _spelled(texts: Iterable[str], group: str, layout: NameLayout) -> list[str]:
    """The texts of a group, the layout's words as what they denote."""
    words = layout.words.get(group, {})
    return [words.get(text, text) for text in texts]


def _refuse_long(texts: NDArray[np.str_], what: str) -> None:
    """Refuse texts, (n,), beyond `_LONGEST_TEXT`: the time of a pattern may grow with the square of the length."""
    if texts.dtype.itemsize > _LONGEST_TEXT * _CHARACTER_BYTES:
        row = int(np.char.str_len(texts).argmax())
        raise InputError(
            f"{what} are paths, of {_LONGEST_TEXT} characters at most: row {row} holds {len(texts[row])}, "
            f"{str(texts[row])[:_LONGEST_SHOWN]!r}…"
        )


def sides_by_folder(names: NDArray[np.str_], folders: Mapping[str, str]) -> Coded:
    """Find the side of each image by the folder that it is in; `EVALUATED` where no folder is among those given."""
    sides = list(dict.fromkeys([EVALUATED, *folders.values()]))
    wanted = [(f"/{folder.strip('/')}/", sides.index(name)) for folder, name in folders.items()]

    @cache
    def of_folder(folder: str) -> int:
        """The side of the deepest wanted part of a folder, and of the longest one of these."""
        path = f"/{folder}"
        found = [(path.rfind(part) + len(part), len(part), code) for part, code in wanted if part in path]
        return max(found)[2] if found else 0

    codes = np.empty(len(names), np.int32)
    for start, block in path_blocks(names):
        inside = [path[: path.rfind("/") + 1] for path in block]
        codes[start : start + len(block)] = np.fromiter(map(of_folder, inside), np.int32, len(block))
    return Coded(text_rows(sides, "sets"), codes)


# ---- patterns --------------------------------------------------------------------------------------------------------


@contextmanager
def searching(layout: NameLayout) -> Iterator[Search]:
    """Search of the labels of a layout in names: in base names, or in paths for patterns that hold a ``/``."""
    if layout.is_limited:
        with _process(layout) as search:
            yield search
    else:
        yield lambda _, block: _found(layout, block)


def _of_pattern(pattern: re.Pattern[str], block: list[str]) -> list[str]:
    return block if "/" in pattern.pattern else [path[path.rfind("/") + 1 :] for path in block]


def _found(layout: NameLayout, block: list[str]) -> list[Groups]:
    """Search by the first pattern, and where that does not fit by the others."""
    first, *others = layout.patterns
    found = list(map(first.search, _of_pattern(first, block)))
    for pattern in others:
        if None not in found:
            break
        texts = _of_pattern(pattern, block)
        found = [pattern.search(texts[row]) if match is None else match for row, match in enumerate(found)]
    return [match and match.group(*layout.groups, 0) for match in found]


@contextmanager
def _process(layout: NameLayout) -> Iterator[Search]:
    (pattern,) = layout.patterns
    # Isolated, and without the modules that sites add: it starts in some hundredths of a second.
    words = [sys.executable, "-I", "-S", str(Path(search_process.__file__))]
    try:
        process = subprocess.Popen(  # noqa: S603
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise RunFailedError(f"cannot start a process to search {pattern.pattern!r}: {error}") from error
    source, sink = process.stdout, process.stdin
    if source is None or sink is None:
        raise RunFailedError("a process was started without pipes")

    def search(start: int, block: list[str]) -> list[Groups]:
        texts = _of_pattern(pattern, block)
        send(sink, texts)
        answer = receive(source)
        if answer is None:
            raise BrokenPipeError
        if isinstance(answer, list):
            return answer
        raise InputError(
            f"{layout.name} {pattern.pattern!r} takes more than {_LIMIT_S:g} s for {counted(len(texts), 'name')}; "
            "write repetitions within repetitions as one",
            details=(
                f"it was at row {start + answer}: {texts[answer][:_LONGEST_SHOWN]!r}",
                "([a-z]+)+ tries all ways to split a text, and [a-z]+ accepts the same ones",
            ),
        )

    try:
        with process:
            try:
                send(sink, (pattern.pattern, layout.groups, _LIMIT_S))
                yield search
            finally:
                process.kill()
    except BrokenPipeError:
        raise RunFailedError(f"the process that searched {pattern.pattern!r} has ended; run again") from None


# ---- text lists ------------------------------------------------------------------------------------------------------


def read_lists(locations: Iterable[Any], layout: NameLayout) -> LabelTable:
    """Read the lists of a data set, one after the other, in the form of a layout."""
    paths = [file_of_labels(location) for location in locations]
    if layout.read is not None:
        table = layout.read(paths)
    else:
        table = LabelTable.joined({str(path): _text_list(path, layout) for path in paths})
    table = _with_words(table, layout)
    if "split" not in table.columns:
        return table
    side = Coded.of(table.plain("split"))
    if "split" in layout.sets:
        side = side.mapped(layout.sets["split"], EVALUATED)
    return LabelTable(table.without(["split"]).columns, side)


def read_names_file(location: Any, layout: NameLayout) -> LabelTable:
    """Read names of images in the order of rows: ``.npy``, a name a line, or a line in the form of the layout."""
    path = file_of_labels(location)
    if path.suffix.lower() == ".npy":
        return LabelTable({"image_paths": read_column(path)})
    return _with_words(_text_list(path, layout), layout)


def read_name_list(location: Any, layout: NameLayout) -> NDArray[np.str_]:
    """Read the names of a list of one side, (n,): a name a line, or a line in the form of the layout."""
    path = file_of_labels(location)
    names = read_names(path)
    return names if layout.line is None else _fields(names, layout.line, path).plain("image_paths")


def _with_words(table: LabelTable, layout: NameLayout) -> LabelTable:
    """Replace the words of a layout by what they denote."""
    made: dict[str, Column] = {}
    for group, words in layout.words.items():
        what = label_of_group(group)
        if (
            what in table.columns
            and (values := table.plain(what)).dtype.kind == "U"
            and np.isin(values, [*words]).any()
        ):
            made[what] = np.array(_spelled(values.tolist(), group, layout), dtype=np.str_)
    return table.with_columns(made)


def _text_list(path: Path, layout: NameLayout) -> LabelTable:
    """Read a list of names, or of lines in the form of a layout."""
    names = read_names(path)
    table = LabelTable({"image_paths": names}) if layout.line is None else _fields(names, layout.line, path)
    listed = next((name for form, name in layout.list_sets.items() if fnmatchcase(path.name, form)), None)
    return table if listed is None else table.with_columns({"split": np.full(table.n_rows, listed)})


def _fields(lines: NDArray[np.str_], form: re.Pattern[str], path: Path) -> LabelTable:
    """Read the groups of a pattern from lines; lines that are names alone are rows without labels."""
    _refuse_long(lines, f"lines of {path}")
    unfit, n_fitting, plain = UnfitNames(), 0, True
    columns: dict[str, list[NDArray[np.str_]]] = {group: [] for group in form.groupindex}
    for start in range(0, len(lines), _BLOCK_LINES):
        block = lines[start : start + _BLOCK_LINES].tolist()
        found = [form.fullmatch(line) for line in block]
        fitting = [match for match in found if match is not None]
        n_fitting += len(fitting)
        plain = plain and not any(_BETWEEN.search(line) for line in block)
        for group, blocks in columns.items():
            blocks.append(np.array([match[group] for match in fitting], dtype=np.str_))
        # The first line may name the columns.
        may_be_header = not start and not _DIGIT.search(block[0])
        _add_unfit(
            unfit, start, block, [match is None and (row > 0 or not may_be_header) for row, match in enumerate(found)]
        )
    if plain and not n_fitting:
        return LabelTable({"image_paths": lines})
    if unfit.count or not n_fitting:
        raise InputError(
            f"{unfit.count or len(lines)} of {len(lines)} lines of {path} are not of the form {form.pattern}: "
            f"{unfit.shown() or repr(str(lines[0]))}; choose the layout of this list (--layout, see `reid-dist list "
            "layouts`)"
        )
    return LabelTable(
        {
            "image_paths" if group == "name" else label_of_group(group): np.concatenate(blocks)
            for group, blocks in columns.items()
        }
    )
