"""The picture `pipelines/report.png` in the README: the report page of the demo, as a browser shows it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.browser import LIGHT, browse

PICTURE = Path(__file__).parents[2] / "pipelines" / "report.png"

_WIDTH, _HEIGHT = 1100, 1440
# The page has few colours, and those between them at the edges of letters.
_COLOURS = 64


def store() -> None:
    """Run the demo, and store a picture of the beginning of its page."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([sys.executable, "-m", "reid_dist.cli", "demo"], check=True, cwd=folder)
        page, made = folder / "reid-dist-demo" / "report.html", folder / "page.png"
        # Inputs are named from where the demo was called.
        page.write_text(page.read_text(encoding="utf-8").replace(f"{folder.resolve()}/", ""), encoding="utf-8")
        browse(page.as_uri(), folder / "profile", LIGHT, f"--window-size={_WIDTH},{_HEIGHT}", f"--screenshot={made}")
        with Image.open(made) as picture:
            picture.convert("RGB").quantize(_COLOURS).save(PICTURE, optimize=True)
