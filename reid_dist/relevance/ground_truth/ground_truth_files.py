"""Ground truth in files: JSON, and the text files of Oxford and Paris."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reid_dist.core.json_text import json_of
from reid_dist.core.regular_files import read_regular
from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.relevance.ground_truth.ground_truth_lists import LISTS
from reid_dist.relevance.ground_truth.ground_truth_names import Entry, Faults, ItemIds, ItemNames, bare_name

_QUERY_SUFFIX: Final = "_query.txt"
_IMAGE_PREFIX: Final = "oxc1_"


def _read_text(path: Path) -> str:
    """Read a text file of a source."""
    try:
        return read_regular(path).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise StoreNotFoundError(f"no such ground truth: {path}; give a JSON file or a directory") from error
    except OSError as error:
        raise StoreError(f"ground truth {path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"ground truth {path}: byte {error.start} is not UTF-8 text; give JSON or the published text files "
            "(a pickle is never read)"
        ) from error


def load_json(path: Path) -> object:
    """Read the content of a JSON file."""
    content: object = json_of(_read_text(path), f"ground truth {path}")
    return content


def entries_of_directory(
    directory: Path, n_query: int, query_item_ids: ItemIds | None, gallery_item_ids: ItemIds | None, faults: Faults
) -> list[Entry]:
    """Read the text files of Oxford or Paris."""
    try:
        files = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise StoreError(f"{faults.origin}: cannot be read: {error}") from error
    queries = [name.removesuffix(_QUERY_SUFFIX) for name in files if name.endswith(_QUERY_SUFFIX)]
    if len(queries) != n_query:
        raise InputError(
            f"{faults.origin}: holds {len(queries)} files NAME_query.txt for {n_query} queries; every query row needs "
            "one, in the order of the file names"
        )
    if gallery_item_ids is None:
        raise InputError(
            f"{faults.origin}: names images, and the gallery has no item ids; store it with the image names as item "
            "ids, or give gallery rows in JSON"
        )
    gallery = ItemNames(gallery_item_ids, "gallery")
    present, known = set(files), set(queries)
    for name in files:
        for listed in LISTS["oxford"]:
            stem = name.removesuffix(f"_{listed}.txt")
            if stem != name and stem not in known:
                faults.add(f"{name} belongs to no query; add {stem}_query.txt or remove the file")
    entries = []
    for row, query in enumerate(queries):
        _check_query_image(directory, row, query, query_item_ids, faults)
        lists: dict[str, list[int]] = {name: [] for name in LISTS["oxford"]}
        for name, rows in lists.items():
            file = f"{query}_{name}.txt"
            if file not in present:
                faults.add(
                    f"query {row} ({query}), list {name!r}: {file} is not there; add it, empty if it has no rows"
                )
                continue
            for line, text in enumerate(_read_text(directory / file).splitlines(), 1):
                image = text.strip().removeprefix(_IMAGE_PREFIX)
                found = gallery.find(image) if image else ()
                rows += found[:1] if len(found) == 1 else ()
                if image and len(found) != 1:
                    faults.add_name(f"query {row} ({query}), list {name!r}, {file} line {line}", gallery, image)
        entries.append(Entry(f"query {row} ({query})", lists))
    return entries


def _check_query_image(directory: Path, row: int, query: str, query_item_ids: ItemIds | None, faults: Faults) -> None:
    """Compare the image of a ``_query.txt`` file with the item id of the query row."""
    file = f"{query}{_QUERY_SUFFIX}"
    words = _read_text(directory / file).split()
    if not words:
        faults.add(f"query {row} ({query}): {file} is empty; it must hold the name of the query image and its box")
    elif query_item_ids is not None:
        image, item = words[0].removeprefix(_IMAGE_PREFIX), str(query_item_ids[row])
        if bare_name(item).removeprefix(_IMAGE_PREFIX) != bare_name(image):
            faults.add(
                f"query {row} ({query}): {file} is about image {image!r}, the query set has item id {item!r} in that "
                "row; put the queries in the order of the file names"
            )
