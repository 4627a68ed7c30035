"""`CITATION.cff` and the picture in the README."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import yaml
from PIL import Image
from support.schemas import read_schema

import reid_dist

ROOT = Path(__file__).parents[2]


def test_the_citation_is_valid_and_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    jsonschema.validate(citation, read_schema("citation-file-format.json"))
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", reid_dist.__version__)
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause")
    assert citation["license"] == "BSD-3-Clause"


def test_the_picture_is_small() -> None:
    path = ROOT / "pipelines" / "report.png"
    assert path.stat().st_size < 150_000
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width > 2 * 500
