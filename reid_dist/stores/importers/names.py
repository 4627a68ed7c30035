"""Which array of a source is what: customary names, and options that override them."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError
from reid_dist.stores.distance_block import looks_like_distances
from reid_dist.stores.importers.source import Source, listed
from reid_dist.stores.labels import COLUMN_PREFIX, Role

_WORDS: dict[str, tuple[str, ...]] = {
    "features": ("f", "feature", "features", "feat", "feats", "embedding", "embeddings", "x"),
    "pids": (
        *("pid", "pids", "label", "labels", "id", "ids", "y"),
        *("person_id", "person_ids", "vehicle_id", "vehicle_ids", "identity", "identities"),
    ),
    "camids": ("camid", "camids", "cam", "cams", "camera", "cameras", "camera_id", "camera_ids", "cam_id", "cam_ids"),
    "item_ids": ("item_id", "item_ids"),
    "image_paths": (
        *("image_path", "image_paths", "path", "paths", "img_path", "img_paths", "impath", "impaths", "file", "files"),
        *("filename", "filenames", "file_name", "file_names", "file_path", "file_paths"),
        *("image_name", "image_names", "img_name", "img_names"),
    ),
    "columns/clothes": ("clothes", "clothes_id", "clothes_ids", "cloth", "cloth_id", "cloth_ids"),
    "columns/location": ("location", "locations", "location_id", "location_ids"),
    "columns/tracklet": ("tracklet", "tracklets", "tracklet_id", "tracklet_ids", "track_id", "track_ids"),
    # Which side a row belongs to, where one set holds both; no labels of a store.
    "is_query": ("is_query",),
    "is_gallery": ("is_gallery",),
    "split": ("split",),
}
_NEEDED = ("features", "pids", "camids")
"""What stops the reading where it is there and cannot be read; all else is left out with a note."""
SIDE_LABELS = ("is_query", "is_gallery", "split")
"""Columns that assign rows to sides; not stored."""
_PREFIXES: dict[Role | None, tuple[str, ...]] = {
    None: ("",),
    "query": ("query_", "q_", "q"),
    "gallery": ("gallery_", "g_", "g"),
}


@dataclass(frozen=True)
class ArrayNames:
    """Names of arrays in a source of one set, or of a query and a gallery, where they are not customary ones."""

    features: str | None = None
    pids: str | None = None
    camids: str | None = None
    item_ids: str | None = None
    image_paths: str | None = None
    query_features: str | None = None
    query_pids: str | None = None
    query_camids: str | None = None
    query_item_ids: str | None = None
    query_image_paths: str | None = None
    gallery_features: str | None = None
    gallery_pids: str | None = None
    gallery_camids: str | None = None
    gallery_item_ids: str | None = None
    gallery_image_paths: str | None = None

    @classmethod
    def of(cls, names: ArrayNames | Mapping[str, str | None] | None) -> ArrayNames:
        """Make it of a mapping from option to array name."""
        if isinstance(names, ArrayNames):
            return names
        known = {entry.name for entry in dataclasses.fields(cls)}
        for option in names or {}:
            if option not in known:
                raise unknown_name("array option", option, known)
        return cls(**dict(names or {}))

    def given(self, role: Role | None) -> dict[str, str]:
        """Return the names that were given for one side, by what they are."""
        prefix = f"{role}_" if role else ""
        found: dict[str, Any] = {what: getattr(self, prefix + what) for what in ("features", *_OPTIONAL)}
        return {what: name for what, name in found.items() if name is not None}


_OPTIONAL = ("pids", "camids", "item_ids", "image_paths")
_MULTI_QUERY = "mquery_"
_MOST_KNOWN = 10


@dataclass(frozen=True)
class Part:
    """One set of a source: its role, None for the only set, and the names of its arrays by what they are."""

    role: Role | None
    features: str
    labels: Mapping[str, str]


def option_of(name: str) -> str:
    """Return the option of ``reid-dist ingest`` that is called so in Python."""
    return f"--{name.replace('_', '-')}"


# What an array of a customary name is, on either side.
_CUSTOMARY = {
    prefix + word: what
    for prefixes in _PREFIXES.values()
    for prefix in prefixes
    for what, words in _WORDS.items()
    for word in words
}


def is_customary(name: str) -> bool:
    """Whether a name is customary for some array of either side."""
    return name.lower() in _CUSTOMARY


def unread_notes(source: Source, parts: Iterable[Part]) -> tuple[str, ...]:
    """Return notes on arrays that are not read, of those that test scripts save beside the others."""
    read = {name for part in parts for name in (part.features, *part.labels.values())}
    unread = [name for name in source.arrays if name.lower().startswith(_MULTI_QUERY) and name not in read]
    notes = [
        f"not read: {name}, {reason}"
        for name, reason in source.refused.items()
        if is_customary(name) and _CUSTOMARY[name.lower()] not in (*_NEEDED, *SIDE_LABELS)
    ]
    if unread:
        notes.append(
            f"not read: {listed(unread)} (multi-query features); to use them, ingest them by --features, --pids and "
            "--camids, and pool them by pid_camid"
        )
    return tuple(notes)


def find_parts(source: Source, names: ArrayNames, elsewhere: Container[str] = ()) -> tuple[Part, ...]:
    """Find the sets of a source: one, or a query and a gallery; labels that are `elsewhere` are not looked for."""
    both: tuple[Role, ...] = ("query", "gallery")
    sides = [part for role in both if (part := _find_part(source, names, role, elsewhere)) is not None]
    single = _find_part(source, names, None, elsewhere)
    if len(sides) == 2 and not names.given(None):
        return tuple(sides)
    if single is not None:
        return (single,)
    if len(sides) == 1:
        have: Role | None = sides[0].role
        other = both[1] if have == both[0] else both[0]
        option = f"{other}_features"
        raise InputError(f"found {have} features but no {other} features; name them with {option_of(option)} of "
                         f"`reid-dist ingest` ({option}); {source.contents()}")  # fmt: skip
    matrix = next((name for name in source.arrays if looks_like_distances(name)), None)
    if matrix is not None:
        raise InputError(
            f"found no features, and an array {matrix!r} that looks like distances; write it to a .npy file and "
            "evaluate that",
            details=(
                "command: reid-dist evaluate QUERY GALLERY --distances FILE, with this file or others for the labels",
                "Python: reid_dist.evaluate_distances",
                source.contents(),
            ),
        )
    raise InputError(
        f"found no features in {source.uri}; name the array",
        details=(
            "reid-dist ingest: --features, or --query-features and --gallery-features",
            "Python: features, or query_features and gallery_features",
            source.contents(),
        ),
    )


def _find_part(source: Source, names: ArrayNames, role: Role | None, elsewhere: Container[str]) -> Part | None:
    found = _find(source, names.given(role), role, elsewhere)
    return None if "features" not in found else Part(role, found.pop("features"), found)


def _find(
    source: Source, given: Mapping[str, str], role: Role | None, elsewhere: Container[str] = ("features",)
) -> dict[str, str]:
    """Find the arrays of one side by what they are: by `given` names, else by customary ones, unless `elsewhere`.

    Further columns of a store of this package keep their names, ``columns/NAME`` or ``query_columns/NAME``.
    """
    found: dict[str, str] = {}
    for what, words in _WORDS.items():
        if what in given:
            found[what] = _look_up(source, given[what])
        elif what not in elsewhere and (name := _customary(source, what, words, role)) is not None:
            found[what] = name
    stored = f"{role}_{COLUMN_PREFIX}" if role else COLUMN_PREFIX
    further = {COLUMN_PREFIX + name.removeprefix(stored): name for name in source.arrays if name.startswith(stored)}
    return found | further


def find_labels(source: Source, role: Role) -> dict[str, str]:
    """Find the labels of one side, in a source that need not hold features; labels without a prefix serve either."""
    for prefix in (role, None):
        found = _find(source, {}, prefix)
        if "pids" in found:
            return found
    raise InputError(f"found no identities of the {role} side; name them {role}_pids; {source.contents()}")


def find_table(source: Source, names: ArrayNames) -> dict[str, str]:
    """Find the labels of a table beside features; names that were given and that it lacks belong to the features."""
    given = names.given(None)
    held = {what: name for what, name in given.items() if name in source.arrays and what != "features"}
    found = _find(source, held, None, elsewhere={"features", *given})
    if not found:
        raise InputError(
            "found no labels; name them with --pids and --camids, or label and camera", details=(source.contents(),)
        )
    return found


def _look_up(source: Source, name: str) -> str:
    if name in source.arrays:
        return name
    if name in source.refused:
        raise InputError(f"{name!r} cannot be read: it is {source.refused[name]}")
    raise unknown_name("array", name, source.arrays, _MOST_KNOWN, details=(source.contents(),))


def _customary(source: Source, what: str, words: Iterable[str], role: Role | None) -> str | None:
    wanted = {prefix + word for prefix in _PREFIXES[role] for word in words}
    fitting = [
        name
        for name, array in source.arrays.items()
        # Paths are no numbers.
        if name.lower() in wanted and (what != "image_paths" or array.dtype.kind in "US")
    ]
    if len(fitting) > 1:
        option = f"{role}_{what}" if role else what
        if what.startswith(COLUMN_PREFIX):
            raise InputError(f"{' and '.join(fitting)} could both be {what}; leave one out of the source")
        raise InputError(f"{' and '.join(fitting)} could both be {option}; choose one with {option_of(option)} of "
                         f"`reid-dist ingest` ({option})")  # fmt: skip
    if not fitting and what in _NEEDED and any(name.lower() in wanted for name in source.refused):
        name = next(name for name in source.refused if name.lower() in wanted)
        raise InputError(f"{name!r} cannot be read: it is {source.refused[name]}")
    return fitting[0] if fitting else None
