"""Lists that come with a data set in a form of their own: tables, XML, and MATLAB files.

XML, as VeRi-776 and the vehicle track of AI City have it, holds one ``Item`` with attributes per image.  A document
type is refused, so that there are no entities, neither of this file, which could grow without bounds, nor of other
files and hosts.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.json_text import json_of
from reid_dist.core.regular_files import read_regular
from reid_dist.core.segments import range_entries
from reid_dist.errors import InputError
from reid_dist.stores.importers.label_tables import LabelTable
from reid_dist.stores.importers.names import ArrayNames
from reid_dist.stores.importers.source import HeldRows, RowArray, Source, open_source, text_rows
from reid_dist.stores.importers.text_files import read_names, read_text
from reid_dist.stores.labels import as_whole_numbers

_GALLERY, _QUERY, _TRAIN = "gallery", "query", "train"

# ---- tables ----------------------------------------------------------------------------------------------------------


def read_tables(paths: Sequence[Path]) -> LabelTable:
    """Read tables with the customary names of columns: CSV, JSON, or any known format."""
    return LabelTable.joined({str(path): _table(path) for path in paths})


def _table(path: Path) -> LabelTable:
    with _json_source(path) if path.suffix.lower() == ".json" else open_source(str(path)) as source:
        table = LabelTable.of_table(source, ArrayNames())
        if "image_paths" not in table.columns:
            raise InputError(
                f"{path} has no column of image names, such as path, img_path or file_path; {source.contents()}"
            )
        return table


def _json_source(path: Path) -> Source:
    """Read JSON that is a list of objects, or an object of lists; values that are no text and no numbers are left out.

    InputError if it is neither.
    """
    held = json_of(read_text(path), str(path))
    if isinstance(held, list) and held and all(isinstance(each, dict) for each in held):
        every = [key for key in held[0] if all(key in each for each in held)]
        held = {key: [each[key] for each in held] for key in every}
    if not isinstance(held, dict):
        raise InputError(f"{path} is no table: give a list of objects with the same keys, or an object of lists")
    return Source(
        str(path),
        {
            str(key): HeldRows(text_rows(list(map(str, values)), str(key)))
            for key, values in held.items()
            if isinstance(values, list)
            and all(isinstance(value, str | int) and not isinstance(value, bool) for value in values)
        },
    )


# ---- MATLAB ----------------------------------------------------------------------------------------------------------

_MATLAB = (".mat",)
_TRACKS = ("track_test_info", "track_train_info")
_QUERY_TRACKS = "query_IDX"


def read_tracks(paths: Sequence[Path]) -> LabelTable:
    """Read the lists of MARS: ``tracks_test_info.mat``, and with it ``query_IDX.mat`` and ``test_name.txt``.

    Tracks are rows of first image, last image, identity and camera, counted from 1.  With the names of the images the
    rows are images, with the number of their track as a column; without, they are the tracks in their order.
    """
    with _arrays(paths) as arrays:
        held = [name for name in _TRACKS if name in arrays]
        if len(held) != 1:
            raise InputError(
                f"the lists of MARS need one of {' and '.join(_TRACKS)}, found {', '.join(arrays) or 'none'}; give "
                "info/tracks_test_info.mat, with info/query_IDX.mat for query and gallery"
            )
        tracks = arrays[held[0]].whole()
        if tracks.ndim != 2 or tracks.shape[1] != 4 or tracks.dtype.kind not in "iuf":
            raise InputError(
                f"{held[0]} must hold four numbers per track, first, last, pid and camid, not {tracks.shape}"
            )
        first, last, pids, camids = (as_whole_numbers(tracks[:, at], held[0]) for at in range(4))
        columns: dict[str, NDArray[Any]] = {
            "pids": pids, "camids": camids, "columns/tracklet": np.arange(1, len(tracks) + 1)
        }  # fmt: skip
        if _QUERY_TRACKS in arrays:
            columns["split"] = _split(arrays, len(tracks), {_QUERY: _QUERY_TRACKS}, _GALLERY)
    names = [read_names(path) for path in paths if path.suffix.lower() not in _MATLAB]
    if not names:
        return LabelTable(columns)
    if len(names) > 1:
        raise InputError("the lists of MARS need one list of names, info/test_name.txt; several were given")
    if (first < 1).any() or (last < first).any() or (last > len(names[0])).any():
        raise InputError(
            f"{held[0]} has tracks beyond the {counted(len(names[0]), 'name')} of the list; give the names of the same "
            "set, info/test_name.txt for tracks_test_info.mat"
        )
    lengths = last - first + 1
    images = LabelTable(columns).select(np.repeat(np.arange(len(tracks)), lengths))
    return images.with_columns({"image_paths": names[0][range_entries(first - 1, lengths)[1]]})


def read_cuhk03(paths: Sequence[Path]) -> LabelTable:
    """Read ``cuhk03_new_protocol_config_labeled.mat`` or ``…_detected.mat``: names, identities, cameras and sets."""
    columns = {"image_paths": "filelist", "pids": "labels", "camids": "camId"}
    places = {_QUERY: "query_idx", _GALLERY: "gallery_idx"}
    needed = [*columns.values(), *places.values()]
    with _arrays(paths) as arrays:
        missing = [name for name in needed if name not in arrays]
        if missing:
            raise InputError(
                f"the list of CUHK03-NP needs {', '.join(needed)}, and {', '.join(missing)} is missing in "
                f"{', '.join(map(str, paths))}; give cuhk03_new_protocol_config_labeled.mat or …_detected.mat"
            )
        table = LabelTable.of(Source("", arrays), columns)
        return table.with_columns({"split": _split(arrays, table.n_rows, places, _TRAIN)})


@contextmanager
def _arrays(paths: Sequence[Path]) -> Iterator[dict[str, RowArray]]:
    """Open the arrays of all MATLAB files by name."""
    found: dict[str, RowArray] = {}
    with ExitStack() as opened:
        for path in (each for each in paths if each.suffix.lower() in _MATLAB):
            for name, array in opened.enter_context(open_source(str(path))).arrays.items():
                if name in found:
                    raise InputError(f"{name} is in {path} as well as in another list; give one of the two")
                found[name] = array
        yield found


def _split(arrays: Mapping[str, RowArray], n: int, places: Mapping[str, str], other: str) -> NDArray[np.str_]:
    """Return the set of each of n rows: the one whose array holds this row, counted from 1, or the other one."""
    split = np.full(n, other, dtype=f"<U{max(map(len, (other, *places)))}")
    for name, array in places.items():
        rows = as_whole_numbers(arrays[array].column(array), array)
        if (rows < 1).any() or (rows > n).any():
            raise InputError(f"{array} must be numbers from 1 to {n}, found {rows.min()} to {rows.max()}")
        split[rows - 1] = name
    return split


# ---- XML -------------------------------------------------------------------------------------------------------------

_DECLARATION = re.compile(rb"""^<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["'][^>]*\?>""")
_ENCODINGS = ("utf-8", "gb18030", "gbk", "gb2312", "ascii", "iso8859-1", "utf-16")
_ITEM = "Item"
_ATTRIBUTES = {"imageName": "image_paths", "vehicleID": "pids", "cameraID": "camids", "colorID": "columns/color",
               "typeID": "columns/type"}  # fmt: skip
_NEEDED = ("imageName", "vehicleID", "cameraID")
_CAMERA = re.compile(r"c?([0-9]+)")
_BLOCK_CHARACTERS = 1 << 20
_IMAGES = (".jpg", ".jpeg", ".png")


def read_veri(paths: Sequence[Path]) -> LabelTable:
    """Read the lists of VeRi-776: XML with labels, and ``test_track.txt`` with the images of a track in each line.

    Every image that is in no track is a track of its own, so that it is a group of its own in a ranking of tracks.
    """
    xml = [path for path in paths if path.suffix.lower() == ".xml"]
    tracks: dict[str, int] = {}
    n_tracks = 0
    for path in (each for each in paths if each not in xml):
        for line in read_text(path).splitlines():
            images = [word for word in line.split() if word.lower().endswith(_IMAGES)]
            n_tracks += bool(images)
            for image in images:
                if tracks.setdefault(image, n_tracks) != n_tracks:
                    raise InputError(f"{path} has {image} in the tracks {tracks[image]} and {n_tracks}")
    if not xml and not tracks:
        raise InputError(
            f"{', '.join(path.name for path in paths)} lists no images (.jpg); the lists of VeRi-776 are "
            "test_label.xml and test_track.txt, with the images of a track in each line"
        )
    if xml:
        table = LabelTable.joined({str(path): _items(path) for path in xml})
    else:
        table = LabelTable({"image_paths": np.array(list(tracks), dtype=np.str_)})
    if not tracks:
        return table
    own = iter(range(n_tracks + 1, n_tracks + table.n_rows + 1))
    numbers = [tracks.get(name) or next(own) for name in table.plain("image_paths").tolist()]
    return table.with_columns({"columns/tracklet": np.array(numbers)})


def _items(path: Path) -> LabelTable:
    """Read the items of an XML file: names, identities, cameras, colours and types."""
    text = _text_of(path)
    items: list[dict[str, str]] = []

    def refuse_document_type(*_: object) -> None:
        raise InputError(
            f"{path} declares a document type, whose entities are never read; remove the <!DOCTYPE …> from the file"
        )

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == _ITEM:
            items.append(attributes)

    # The text is given in UTF-8, whatever encoding it declares.
    parser = expat.ParserCreate("utf-8")
    parser.StartDoctypeDeclHandler = refuse_document_type
    parser.StartElementHandler = start
    try:
        for first in range(0, len(text), _BLOCK_CHARACTERS):
            parser.Parse(text[first : first + _BLOCK_CHARACTERS].encode(), False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise InputError(f"{path} is not XML: {error}") from None
    for place, item in enumerate(items):
        missing = [name for name in _NEEDED if name not in item]
        if missing:
            raise InputError(f"{path}: item {place} has no {' and no '.join(missing)}; every <Item> needs one")
        camera = _CAMERA.fullmatch(item["cameraID"])
        if camera is None:
            raise InputError(
                f"{path}: item {place} has the cameraID {item['cameraID']!r}, and cameras are c001, c002, …"
            )
        item["cameraID"] = camera[1]
    if not items:
        raise InputError(f"{path} holds no <Item imageName=… vehicleID=… cameraID=…>")
    held = {name: what for name, what in _ATTRIBUTES.items() if all(name in item for item in items)}
    return LabelTable({what: text_rows([item[name] for item in items], what) for name, what in held.items()})


def _text_of(path: Path) -> str:
    """Decode a document by its byte order mark or its declaration."""
    data = read_regular(path)
    declared = _DECLARATION.match(data)
    name = "utf-8" if declared is None else declared[1].decode("ascii")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        name = "utf-16"
    try:
        encoding = codecs.lookup(name).name
        if encoding not in _ENCODINGS:
            raise LookupError
        # All of GB 2312 is GB 18030, and files declare the former for the latter.
        return data.decode("gb18030" if encoding in ("gb2312", "gbk") else encoding).removeprefix("\ufeff")
    except LookupError:
        raise InputError(f"{path} is in the encoding {name}, which is not read; save it as UTF-8") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is no text in {name}: byte {error.start} has no meaning there; save it as UTF-8"
        ) from None
