"""Thumbnails of image files; path, size and content of the files are untrusted."""

from __future__ import annotations

import importlib
import stat
import warnings
from io import BytesIO
from pathlib import Path
from typing import Final

THUMBNAIL_SIZE = 256, 128
"""Greatest width and height of a thumbnail, in pixels; a smaller picture keeps its size."""

NO_PILLOW: Final = "Pillow is not installed (pip install 'reid-dist[pictures]')"

_MOST_PIXELS = 50_000_000  # a camera's largest picture; decoded, 150 MB
_MOST_BYTES = 100_000_000
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
