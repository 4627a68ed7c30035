"""Ranked pictures of a page: a query and the nearest items of its list, each marked right, wrong or junk.

Pictures are thumbnails, kept as bytes: a page with them needs no other file, and ``pictures.json`` keeps them for a
page that is written again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from reid_dist.core.json_text import parse_json
from reid_dist.errors import InputError

MARKS: Final = ("query", "right", "wrong", "junk", "not assessed")
"""What an item is to its query."""

_REASONS: Final = ("hardest", "chosen")
_JPEG_START = b"\xff\xd8\xff"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A query, or one item of its list.

    The rank counts from 1 after junk is removed, and is None for junk and for a query; `file` is its name, "" where it
    is not known; `image` is a JPEG, None where the picture cannot be read.
    """

    row: int
    mark: str
    rank: int | None = None
    pid: int | None = None
    camid: int | None = None
    distance: float | None = None
    file: str = ""
    image: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mark not in MARKS:
            raise InputError(f"mark of a picture must be one of {', '.join(MARKS)}, found {self.mark!r}")
        for name in ("row", "rank", "pid", "camid"):
            _require(name, getattr(self, name), int, optional=name != "row")
        _require("distance", self.distance, float, optional=True)
        _require("file", self.file, str)
        if self.image is not None:
            _require_jpeg(self.image)


@dataclass(frozen=True, kw_only=True)
class RankedPictures:
    """A query and the head of its list, nearest first, junk included; the reason is ``hardest`` or ``chosen``.

    `right` is the nearest right item where the head holds none and it is known.
    """

    reason: str
    query: Picture
    items: tuple[Picture, ...]
    right: Picture | None = None

    def __post_init__(self) -> None:
        if self.reason not in _REASONS:
            raise InputError(f"reason of ranked pictures must be one of {', '.join(_REASONS)}, found {self.reason!r}")


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Pictures of a page: chosen queries, then the hardest ones, and a note on what is missing, or "".

    `thumbnails` are JPEGs by side (``query``, ``gallery``) and row, of rows that tables of the page name.
    """

    queries: tuple[RankedPictures, ...] = ()
    note: str = ""
    thumbnails: Mapping[str, Mapping[int, bytes]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for images in self.thumbnails.values():
            for image in images.values():
                _require_jpeg(image)

    def thumbnail(self, side: str, row: int) -> bytes | None:
        """Return the picture of a row that a table names, if there is one."""
        return self.thumbnails.get(side, {}).get(row)

    def to_json(self) -> str:
        """Return everything as ASCII JSON, images in base64."""
        # Bytes are no JSON, and are encoded where they occur.
        content = {"note": self.note, "queries": [*map(asdict, self.queries)], "thumbnails": self.thumbnails}
        return json.dumps(content, indent=1, default=_encoded) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the JSON, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_json().encode("ascii")).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Pictures:
        """Read what :meth:`to_json` wrote; anything else is an `InputError`."""
        try:
            document = parse_json(text)
            _require("note", document["note"], str)
            return cls(
                note=document["note"],
                queries=tuple(
                    RankedPictures(
                        reason=shown["reason"],
                        query=_read(shown["query"]),
                        items=tuple(map(_read, shown["items"])),
                        # Reports of earlier versions have neither these, nor thumbnails for tables.
                        right=None if shown.get("right") is None else _read(shown["right"]),
                    )
                    for shown in document["queries"]
                ),
                thumbnails={
                    side: {int(row): _decoded(image) for row, image in images.items()}
                    for side, images in document.get("thumbnails", {}).items()
                },
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"pictures are not as they were written: {error!r}") from error


def _require(name: str, value: object, kind: type, *, optional: bool = False) -> None:
    if isinstance(value, bool) or not (isinstance(value, kind) or (optional and value is None)):
        raise InputError(f"{name} of a picture must be of type {kind.__name__}, found {value!r:.60}")


def _require_jpeg(image: bytes) -> None:
    # It goes into the page as it is: nothing that only calls itself a picture.
    if not image.startswith(_JPEG_START):
        raise InputError("image of a picture must be a JPEG")


def _read(entry: dict[str, Any]) -> Picture:
    known = {part.name for part in fields(Picture)}
    if set(entry) | {"file"} != known:
        raise InputError(f"a picture has {sorted(known)}, found {sorted(entry)}")
    return Picture(**(entry | {"image": None if entry["image"] is None else _decoded(entry["image"])}))


def _encoded(image: bytes) -> str:
    return base64.b64encode(image).decode("ascii")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InputError(f"image of a picture is no base64: {error}") from error
