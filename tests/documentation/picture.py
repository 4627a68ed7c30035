"""The picture `pipelines/report.png` in the README, as a browser shows the pages.

From above: the head of the demo's report; ranked images of a set of painted figures, whose features are their own
colours; and the page of two nights, in the second of which a model became worse.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from tests.support.browser import LIGHT, browse

PICTURE = Path(__file__).parents[2] / "pipelines" / "report.png"

_WIDTH = 1100
# Heights of what is shown of each page.
_REPORT, _RANKED, _NIGHT = 398, 476, 290
_COLOURS = 160

_N_IDENTITIES, _N_CAMERAS = 24, 4
_SIZE = (48, 96)
_LOOK = (8, 16)
"""Width and height to which an image is reduced: its pixels are its features."""

_SUITE = """\
suite: painted-figures
models: {pixels: {path: .}}
datasets: {painted: {query: query.zarr, gallery: gallery.zarr}}
jobs: {plain: {}, expanded: {expand: "aqe(k=2)"}}
"""


def store() -> None:
    """Run the demo, an evaluation and two nights, and store a picture of the beginnings of their pages."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _run(folder, "demo")
        _paint(folder)
        _make_features(folder, noise=8)
        lists = ("--topk", "9", "--pictures", "2,40,77", "--name", "painted figures", "--output", "ranked")
        _run(folder, "evaluate", "query.zarr", "gallery.zarr", *lists)
        (folder / "suite.yaml").write_text(_SUITE)
        night = ("nightly", "suite.yaml", "--history", "nights.db", "--output", "nights", "--cluster", "threads.yaml")
        (folder / "threads.yaml").write_text("kind: threads\n")
        _run(folder, *night)
        _make_features(folder, noise=30)
        _run(folder, *night, codes=(4,))
        shown = [
            _shown(folder, "reid-dist-demo/report.html", _REPORT),
            _shown(folder, "ranked/report.html", _RANKED, "pictures"),
            _shown(folder, "nights/index.html", _NIGHT),
        ]
    picture = Image.fromarray(np.concatenate(shown))
    picture.quantize(_COLOURS).save(PICTURE, optimize=True)


def _run(folder: Path, *words: str, codes: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run([sys.executable, "-m", "reid_dist.cli", *words], check=False, cwd=folder)
    if done.returncode not in codes:
        raise RuntimeError(f"reid-dist {' '.join(words)} ended with {done.returncode}")


def _shown(folder: Path, page: str, height: int, section: str = "") -> np.ndarray:
    """Pixels of a page from its beginning, or of a section of it by the name of its heading."""
    path, made = folder / page, folder / "page.png"
    # Inputs are named from where the commands were called.
    text = path.read_text(encoding="utf-8").replace(f"{folder.resolve()}{os.sep}", "")
    alone = f"<style>body :not(:has(#{section}), section:has(#{section}) *) {{ display: none }}</style></head>"
    path.write_text(text.replace("</head>", alone, 1) if section else text, encoding="utf-8")
    browse(path.as_uri(), folder / "profile", LIGHT, f"--window-size={_WIDTH},{height}", f"--screenshot={made}")
    with Image.open(made) as picture:
        return np.asarray(picture.convert("RGB"))[:height, :_WIDTH]


def _labels() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Identity, camera and side of every image: the first of two images of an identity in a camera is a query."""
    pids, camids, copies = (each.ravel() for each in np.indices((_N_IDENTITIES, _N_CAMERAS, 2)))
    return pids, camids, copies == 0


def _paint(folder: Path) -> None:
    """Draw the images: figures in the clothes of their identity, in the light of their camera."""
    (folder / "images").mkdir()
    rng = np.random.default_rng(1)
    clothes = rng.integers(30, 226, (_N_IDENTITIES, 3, 3))
    light = rng.uniform(0.8, 1.15, (_N_CAMERAS, 3))
    grounds = rng.integers(110, 160, (_N_CAMERAS, 3))
    for row, (pid, camid, _) in enumerate(zip(*_labels(), strict=True)):
        dx, dy = rng.integers(-4, 5, 2)
        picture = Image.new("RGB", _SIZE, tuple(int(each) for each in grounds[camid]))
        draw = ImageDraw.Draw(picture)
        upper, lower, bag = (tuple(int(each) for each in colour) for colour in clothes[pid])
        draw.ellipse((18 + dx, 6 + dy, 30 + dx, 20 + dy), fill=(214, 176, 148))
        draw.rounded_rectangle((12 + dx, 20 + dy, 36 + dx, 54 + dy), 6, fill=upper)
        draw.rectangle((14 + dx, 52 + dy, 23 + dx, 90 + dy), fill=lower)
        draw.rectangle((25 + dx, 52 + dy, 34 + dx, 90 + dy), fill=lower)
        if pid % 2:
            draw.rectangle((32 + dx, 30 + dy, 41 + dx, 48 + dy), fill=bag)
        lit = np.clip(np.asarray(picture) * light[camid], 0, 255).astype(np.uint8)
        Image.fromarray(lit).save(folder / "images" / f"{row:04d}.png")


def _make_features(folder: Path, noise: float) -> None:
    """Store the pixels of all images as features, with noise, which is what makes a model worse."""
    from reid_dist import FeatureSet

    pids, camids, is_query = _labels()
    paths = np.array([f"images/{row:04d}.png" for row in range(len(pids))])
    looks = []
    for path in paths:
        with Image.open(folder / path) as picture:
            looks.append(np.asarray(picture.resize(_LOOK), np.float32).ravel())
    features = np.array(looks)
    features += np.random.default_rng(2).normal(0, noise, features.shape) - features.mean(axis=0)
    for side, rows in (("query", is_query), ("gallery", ~is_query)):
        made = FeatureSet.from_arrays(features[rows], pids[rows], camids[rows], image_paths=paths[rows])
        made.save(folder / f"{side}.zarr", overwrite=True)
