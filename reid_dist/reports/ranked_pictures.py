"""Ranked pictures of a page: a query and the nearest items of its list, each marked right, wrong or junk.

Pictures are thumbnails, kept as bytes: a page with them needs no other file, and ``pictures.json`` keeps them for a
page that is written again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
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

    The rank counts from 1 after junk is removed, and is None for junk and for a query; `image` is a JPEG, None where
    the picture cannot be read.
    """

    row: int
    mark: str
    rank: int | None = None
    pid: int | None = None
    camid: int | None = None
    distance: float | None = None
    image: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mark not in MARKS:
            raise InputError(f"mark of a picture must be one of {', '.join(MARKS)}, found {self.mark!r}")
        for name in ("row", "rank", "pid", "camid"):
            _require(name, getattr(self, name), int, optional=name != "row")
        _require("distance", self.distance, float, optional=True)
        _require("image", self.image, bytes, optional=True)
        # It goes into the page as it is: nothing that only calls itself a picture.
        if self.image is not None and not self.image.startswith(_JPEG_START):
            raise InputError("image of a picture must be a JPEG")


@dataclass(frozen=True, kw_only=True)
class RankedPictures:
    """A query and the head of its list, nearest first, junk included; the reason is ``hardest`` or ``chosen``."""

    reason: str
    query: Picture
    items: tuple[Picture, ...]

    def __post_init__(self) -> None:
        if self.reason not in _REASONS:
            raise InputError(f"reason of ranked pictures must be one of {', '.join(_REASONS)}, found {self.reason!r}")


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Pictures of a page: chosen queries, then the hardest ones, and a note on what is missing, or ""."""

    queries: tuple[RankedPictures, ...] = ()
    note: str = ""

    def to_json(self) -> str:
        """Return everything as ASCII JSON, images in base64."""
        queries = [
            {"reason": shown.reason, "query": _written(shown.query), "items": [_written(item) for item in shown.items]}
            for shown in self.queries
        ]
        return json.dumps({"note": self.note, "queries": queries}, indent=1) + "\n"

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
                    )
                    for shown in document["queries"]
                ),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"pictures are not as they were written: {error!r}") from error


def _require(name: str, value: object, kind: type, *, optional: bool = False) -> None:
    if isinstance(value, bool) or not (isinstance(value, kind) or (optional and value is None)):
        raise InputError(f"{name} of a picture must be of type {kind.__name__}, found {value!r:.60}")


def _written(picture: Picture) -> dict[str, Any]:
    image = None if picture.image is None else base64.b64encode(picture.image).decode("ascii")
    return asdict(picture) | {"image": image}


def _read(entry: dict[str, Any]) -> Picture:
    known = {part.name for part in fields(Picture)}
    if set(entry) != known:
        raise InputError(f"a picture has {sorted(known)}, found {sorted(entry)}")
    try:
        image = None if entry["image"] is None else base64.b64decode(entry["image"], validate=True)
    except binascii.Error as error:
        raise InputError(f"image of a picture is no base64: {error}") from error
    return Picture(**(entry | {"image": image}))
