"""Lists in MATLAB files: the tracks of MARS, and the protocol of CUHK03-NP; tracks of VeRi-776 beside its XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.segments import range_entries
from reid_dist.errors import InputError
from reid_dist.stores.importers.name_layouts.definition import Records
from reid_dist.stores.importers.name_layouts.xml_lists import read_xml_lists
from reid_dist.stores.importers.source import RowArray, open_source
from reid_dist.stores.importers.text_files import read_names, read_text
from reid_dist.stores.labels import as_whole_numbers

_MATLAB = (".mat",)
_TRACKS = ("track_test_info", "track_train_info")
_QUERY_TRACKS = "query_IDX"
_IMAGES = (".jpg", ".jpeg", ".png")
_GALLERY, _QUERY, _TRAIN = "gallery", "query", "train"


def read_tracks(paths: Sequence[Path]) -> Records:
    """Read the lists of MARS: ``tracks_test_info.mat``, and with it ``query_IDX.mat`` and ``test_name.txt``.

    Tracks are rows of first image, last image, identity and camera, counted from 1.  With the names of the images the
    records are images, with the number of their track as a column; without, they are the tracks in their order.
    """
    with _arrays(paths) as arrays:
        return _records_of_tracks(arrays, [path for path in paths if path.suffix.lower() not in _MATLAB])


def _records_of_tracks(arrays: Mapping[str, RowArray], lists: Sequence[Path]) -> Records:
    held = [name for name in _TRACKS if name in arrays]
    if len(held) != 1:
        raise InputError(
            f"the lists of MARS need one of {' and '.join(_TRACKS)}, found {', '.join(arrays) or 'none'}; give "
            "info/tracks_test_info.mat, with info/query_IDX.mat for query and gallery"
        )
    tracks = arrays[held[0]].whole()
    if tracks.ndim != 2 or tracks.shape[1] != 4 or tracks.dtype.kind not in "iuf":
        raise InputError(f"{held[0]} must hold four numbers per track, first, last, pid and camid, not {tracks.shape}")
    first, last, pids, camids = (as_whole_numbers(tracks[:, at], held[0]) for at in range(4))
    records: Records = {"pids": pids, "camids": camids, "columns/tracklet": np.arange(1, len(tracks) + 1)}
    if _QUERY_TRACKS in arrays:
        records["split"] = _split(len(tracks), {_QUERY: _places(arrays, _QUERY_TRACKS, len(tracks))}, _GALLERY)
    names = [read_names(path) for path in lists]
    if not names:
        return records
    if len(names) > 1:
        raise InputError("the lists of MARS need one list of names, info/test_name.txt; several were given")
    if (first < 1).any() or (last < first).any() or (last > len(names[0])).any():
        raise InputError(
            f"{held[0]} has tracks beyond the {counted(len(names[0]), 'name')} of the list; give the names of the same "
            "set, info/test_name.txt for tracks_test_info.mat"
        )
    lengths = last - first + 1
    images = {what: np.repeat(values, lengths) for what, values in records.items()}
    return {"image_paths": names[0][range_entries(first - 1, lengths)[1]], **images}


def read_cuhk03(paths: Sequence[Path]) -> Records:
    """Read ``cuhk03_new_protocol_config_labeled.mat`` or ``…_detected.mat``: names, identities, cameras and sets."""
    needed = ("filelist", "labels", "camId", "query_idx", "gallery_idx")
    with _arrays(paths) as arrays:
        missing = [name for name in needed if name not in arrays]
        if missing:
            raise InputError(
                f"the list of CUHK03-NP needs {', '.join(needed)}, and {', '.join(missing)} is missing in "
                f"{', '.join(map(str, paths))}; give cuhk03_new_protocol_config_labeled.mat or …_detected.mat"
            )
        names, pids, camids = (arrays[name].column(name) for name in needed[:3])
        places = {
            _QUERY: _places(arrays, "query_idx", len(names)), _GALLERY: _places(arrays, "gallery_idx", len(names))
        }  # fmt: skip
    return {"image_paths": names, "pids": pids, "camids": camids, "split": _split(len(names), places, _TRAIN)}


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


def _places(arrays: Mapping[str, RowArray], name: str, n: int) -> NDArray[np.int64]:
    """Read places that are counted from 1."""
    places = as_whole_numbers(arrays[name].column(name), name) - 1
    if (places < 0).any() or (places >= n).any():
        raise InputError(f"{name} must be numbers from 1 to {n}, found {places.min() + 1} to {places.max() + 1}")
    return places


def _split(n: int, places: Mapping[str, NDArray[np.int64]], other: str) -> NDArray[Any]:
    """Return the set of each of n records: that of its place, or the other one."""
    split = np.full(n, other, dtype=f"<U{max(map(len, (other, *places)))}")
    for name, rows in places.items():
        split[rows] = name
    return split


def read_veri(paths: Sequence[Path]) -> Records:
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
    if not tracks:
        return read_xml_lists(paths)
    records = read_xml_lists(xml) if xml else {"image_paths": np.array(list(tracks), dtype=np.str_)}
    names = records["image_paths"].tolist()
    own = iter(range(n_tracks + 1, n_tracks + len(names) + 1))
    return {**records, "columns/tracklet": np.array([tracks.get(name) or next(own) for name in names])}
