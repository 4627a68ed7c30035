"""Thumbnails of image files; path, size and content of the files are untrusted."""

from __future__ import annotations

import importlib
import stat
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

THUMBNAIL_SIZE = 256, 128
"""Greatest width and height of a thumbnail, in pixels; a smaller picture keeps its size."""

NO_PILLOW: Final = "Pillow is not installed (pip install 'reid-dist[pictures]')"

_MOST_PIXELS = 50_000_000  # a camera's largest picture; decoded, 150 MB
_MOST_BYTES = 100_000_000
_MOST_KEPT = 4096  # thumbnails, of some kilobytes each
_QUALITY = 80
# Usual formats of photographs.  Not every format that Pillow reads: some start other programs.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")


class UnreadableImageError(Exception):
    """A picture cannot be shown; the message gives the reason."""


def pillow_is_there() -> bool:
    """Return whether Pillow, which opens the pictures, is installed."""
    try:
        importlib.import_module("PIL.Image")
    except ImportError:
        return False
    return True


def thumbnail(path: Path) -> bytes:
    """Return a picture as a small JPEG; the same file gives the same bytes."""
    from PIL import Image

    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a null byte in a path
        raise UnreadableImageError(getattr(error, "strerror", None) or str(error)) from error
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableImageError("not a file")  # a pipe or a device would be read for ever
    if found.st_size > _MOST_BYTES:
        raise UnreadableImageError(f"{found.st_size:,} bytes, the limit is {_MOST_BYTES:,}")
    written = BytesIO()
    try:
        with warnings.catch_warnings():
            # Pillow warns of unusual files (large sizes, broken metadata); these are shown, or reported elsewhere.
            warnings.simplefilter("ignore")
            with Image.open(path, formats=_FORMATS) as image:
                width, height = image.size
                if width * height > _MOST_PIXELS:
                    raise UnreadableImageError(f"{width} x {height} pixels, the limit is {_MOST_PIXELS:,}")
                image.draft("RGB", THUMBNAIL_SIZE)  # a JPEG is decoded at an eighth where that is enough
                small = image.convert("RGB")
            small.thumbnail(THUMBNAIL_SIZE)
            small.info.clear()  # comments and profiles stay out of the page
            small.save(written, "JPEG", quality=_QUALITY, optimize=True)
    except UnreadableImageError:
        raise
    except Exception as error:
        # Decoders raise whatever a broken file leads them to: OSError, SyntaxError, struct.error, MemoryError, …
        raise UnreadableImageError(_first_line(error)) from error
    return written.getvalue()


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()
    return "cannot identify the image" if not text or text[0].startswith("cannot identify") else text[0]


class Thumbnails:
    """Thumbnails of the queries and of the gallery; several threads may read at once.

    Parameters
    ----------
    paths
        Of the pictures by side, each of shape (n,); None for a side without pictures.
    roots
        Where relative paths start: a picture is read from the first of these directories that has it.

    Attributes
    ----------
    first_failure
        The path and the reason of the first one that could not be read; empty if there is none.
    """

    def __init__(self, paths: Mapping[str, NDArray[np.str_] | None], roots: Sequence[Path]) -> None:
        self._paths, self._roots = dict(paths), roots
        self._read: set[tuple[str, int]] = set()
        self._failed: set[tuple[str, int]] = set()
        self.first_failure = ""
        # Of what was read alone: a picture may come later.
        self._found = lru_cache(_MOST_KEPT)(self._read_first)

    @property
    def n_read(self) -> int:
        """Number of pictures that were read."""
        return len(self._read)

    @property
    def n_failed(self) -> int:
        """Number of pictures that could not be read."""
        return len(self._failed)

    def has(self, side: str) -> bool:
        """Whether there are pictures of a side."""
        return self._paths[side] is not None

    def get(self, side: str, row: int) -> bytes | None:
        """Return a thumbnail as a JPEG; None for a row that does not exist and where the picture cannot be read."""
        paths = self._paths[side]
        if paths is None or row >= len(paths):
            return None
        path = str(paths[row])
        try:
            image = self._found(path)
        except UnreadableImageError as error:
            self._failed.add((side, row))
            self.first_failure = self.first_failure or f"{path!r}: {error}"
            return None
        self._read.add((side, row))
        return image

    def _read_first(self, path: str) -> bytes:
        """Read a picture below the first root that has it; the error of none is that below the first one."""
        if not path:
            raise UnreadableImageError("empty path")
        first: UnreadableImageError | None = None
        for root in self._roots:
            try:
                return thumbnail(root / path)
            except UnreadableImageError as error:
                first = first or error
        raise first or UnreadableImageError("no directory of pictures")
