"""Lists that come with a data set: text with one image a line, XML, JSON, and tables of any known format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.stores.importers.name_layouts.definition import NameLayout, Records, label_of_group
from reid_dist.stores.importers.name_layouts.reading import UnfitNames
from reid_dist.stores.importers.names import ArrayNames, find_table
from reid_dist.stores.importers.source import HeldRows, RowArray, Source, open_source, text_rows
from reid_dist.stores.importers.text_files import file_of_labels, read_names, read_text

_BLOCK_LINES = 4096
_BETWEEN, _DIGIT = re.compile(r"[\s;,]"), re.compile("[0-9]")


def read_lists(locations: Sequence[Any], layout: NameLayout) -> Records:
    """Read the lists of a data set, one after the other, in the form of a layout; columns of text, (n,) each."""
    paths = [file_of_labels(location) for location in locations]
    if layout.read is not None:
        return _with_words(layout.read(paths), layout)
    return _with_words(joined(paths, [_text_list(path, layout) for path in paths]), layout)


def read_names_file(location: Any, layout: NameLayout) -> Records:
    """Read names of images in the order of rows: ``.npy``, a name a line, or a line in the form of the layout."""
    path = file_of_labels(location)
    if path.suffix.lower() == ".npy":
        return {"image_paths": open_source(str(path)).arrays["features"].column(path.name)}
    return _with_words(_text_list(path, layout), layout)


def _with_words(records: Records, layout: NameLayout) -> Records:
    """Replace the words of a layout by what they denote."""
    made = dict(records)
    for group, words in layout.words.items():
        values = records.get(label_of_group(group))
        if values is not None and values.dtype.kind == "U" and np.isin(values, list(words)).any():
            made[label_of_group(group)] = np.array([words.get(text, text) for text in values.tolist()], dtype=np.str_)
    return made


def read_name_list(location: Any, layout: NameLayout) -> NDArray[np.str_]:
    """Read the names of a list of one side, (n,): a name a line, or a line in the form of the layout."""
    path = file_of_labels(location)
    names = read_names(path)
    return names if layout.line is None else _fields(names, layout.line, path)["image_paths"]


def joined(paths: Sequence[Path], found: Sequence[Records]) -> Records:
    """Put the columns of several lists one after the other; InputError unless all have the same ones."""
    for path, records in zip(paths[1:], found[1:], strict=True):
        if records.keys() != found[0].keys():
            raise InputError(
                f"{path} holds {', '.join(sorted(records))} and {paths[0]} {', '.join(sorted(found[0]))}; give lists "
                "of one form"
            )
    return {what: np.concatenate([records[what] for records in found]) for what in found[0]}


def _text_list(path: Path, layout: NameLayout) -> Records:
    """Read a list of names, or of lines in the form of a layout."""
    listed_set = next((name for form, name in layout.list_sets.items() if fnmatchcase(path.name, form)), None)
    names = read_names(path)
    records = {"image_paths": names} if layout.line is None else _fields(names, layout.line, path)
    if listed_set is not None:
        records["split"] = np.full(len(records["image_paths"]), listed_set)
    return records


def _fields(lines: NDArray[np.str_], form: re.Pattern[str], path: Path) -> Records:
    """Read the groups of a pattern from lines; lines that are names alone are records without labels."""
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
        for row in np.flatnonzero([match is None for match in found]).tolist():
            # The first line may name the columns.
            if start + row or _DIGIT.search(block[0]):
                unfit.add(start + row, block[row])
    if plain and not n_fitting:
        return {"image_paths": lines}
    if unfit.count or not n_fitting:
        raise InputError(
            f"{unfit.count or len(lines)} of {len(lines)} lines of {path} are not of the form {form.pattern}: "
            f"{unfit.shown() or repr(str(lines[0]))}; choose the layout of this list (--layout, see `reid-dist list "
            "layouts`)"
        )
    return {
        "image_paths" if group == "name" else label_of_group(group): np.concatenate(blocks)
        for group, blocks in columns.items()
    }


def read_tables(paths: Sequence[Path]) -> Records:
    """Read tables with the customary names of columns: CSV, JSON, or any known format."""
    return joined(paths, [_table(path) for path in paths])


def _table(path: Path) -> Records:
    source = json_source(path) if path.suffix.lower() == ".json" else open_source(str(path))
    with source as opened:
        return columns_of(opened, path)


def columns_of(source: Source, path: Path) -> Records:
    """Read the columns of a source by what they are, those of a list of images."""
    found = find_table(source, ArrayNames())
    if "image_paths" not in found:
        raise InputError(
            f"{path} has no column of image names, such as path, img_path or file_path; {source.contents()}"
        )
    return {what: source.arrays[name].whole() for what, name in found.items()}


def json_source(path: Path) -> Source:
    """Read JSON that is a list of objects, or an object of lists; values that are no text and no numbers are left out.

    InputError if it is neither.
    """
    try:
        held = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if isinstance(held, list) and held and all(isinstance(each, dict) for each in held):
        every = [key for key in held[0] if all(key in each for each in held)]
        held = {key: [each[key] for each in held] for key in every}
    if not isinstance(held, dict):
        raise InputError(f"{path} is no table: give a list of objects with the same keys, or an object of lists")
    columns = {str(key): values for key, values in held.items() if _is_column(values)}
    return source_of_columns(path, {key: list(map(str, values)) for key, values in columns.items()})


def _is_column(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, str | int) and not isinstance(value, bool) for value in values
    )


def source_of_columns(path: Path, columns: Mapping[str, Iterable[str]]) -> Source:
    """Make a source of columns of text."""
    arrays: dict[str, RowArray] = {name: HeldRows(text_rows(list(texts), name)) for name, texts in columns.items()}
    return Source(str(path), arrays)
