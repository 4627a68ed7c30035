"""The notebook: a run of its own gives the outputs that are stored, and these name no place of a machine."""

from __future__ import annotations

import io
import json
import re
import tempfile
from pathlib import Path

import pytest
from PIL import Image

from tests.documentation import tour


def test_the_stored_outputs_are_those_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stored = tour.read()
    found = tour.executed(stored)
    assert tour.without_images(found) == tour.without_images(stored)
    sizes = [[picture.size for picture in map(opened, tour.images(each))] for each in (found, stored)]
    assert sizes[0] == sizes[1]
    # A query and six items of its list, and a figure.
    assert len(sizes[0]) == 8
    assert sizes[0].count((20, 48)) == 7


def opened(content: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(content))
    picture.load()
    return picture


def test_the_notebook_is_small_and_names_no_place_of_a_machine() -> None:
    stored, text = tour.read(), tour.NOTEBOOK.read_text()
    assert len(text) < 60_000
    outputs = json.dumps([cell["outputs"] for cell in stored["cells"] if cell["cell_type"] == "code"])
    assert not re.search(r"(?<![\w<])/(?:tmp|home|root|work|usr|var|Users)\b", outputs)
    assert (stored["nbformat"], stored["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in stored["cells"]]
    assert len(set(ids)) == len(ids)


def test_outputs_are_what_a_cell_prints_and_its_last_value() -> None:
    cells = [{"cell_type": "code", "source": [line]} for line in ("a = 2", "print(a)\na + 1", "print('x')\nprint(a)")]
    found = tour.executed({"cells": cells})["cells"]
    assert [len(cell["outputs"]) for cell in found] == [0, 2, 1]
    assert found[1]["outputs"][0]["text"] == ["2\n"]
    assert found[1]["outputs"][1]["data"] == {"text/plain": ["3"]}
    assert found[2]["outputs"][0]["text"] == ["x\n", "2\n"]
