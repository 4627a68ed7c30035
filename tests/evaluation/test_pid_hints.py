"""Sets without a common identity: the error names the cure, and with it the same sets can be evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate, ingest
from reid_dist.errors import InputError

_QUERY, _GALLERY = np.arange(20) % 10 + 1, np.arange(60) % 10 + 1
_GENERAL = "check that both sets belong to the same split and use the same identity numbers"


def _sets(query, gallery, paths=None):
    features = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    return tuple(
        FeatureSet.from_arrays(features[: len(pids)], pids, np.arange(len(pids)) % 7, image_paths=paths and paths[side])
        for side, pids in (("query", query), ("gallery", gallery))
    )


def _refusal(query, gallery, paths=None) -> str:
    with pytest.raises(InputError, match="no query has a relevant gallery item") as error:
        evaluate(*_sets(query, gallery, paths))
    # Behind the hints are the pids of both sides, and their number in common.
    return "; ".join((str(error.value).partition("); ")[2], *error.value.details[:-3]))


@pytest.mark.parametrize(("shift", "words"), [(1000, "plus 1000"), (-40, "minus 40")])
def test_shifted_numbers(shift: int, words: str) -> None:
    query = _QUERY + 50
    message = _refusal(query, query[:10] + shift)
    assert message.startswith(f"{_GENERAL}; 10 of the query pids {words} are gallery pids, if they denote")
    assert evaluate(*_sets(query + shift, query[:10] + shift)).counts["n_valid"] > 0


def test_a_gallery_with_other_identities_at_one_end() -> None:
    gallery = np.concatenate([_GALLERY + 1000, [5000]])[-60:]
    assert "plus 1000" in _refusal(_QUERY, gallery)


def test_some_of_a_long_range_of_numbers() -> None:
    assert _refusal(_QUERY, np.arange(1000, 1060)) == _GENERAL


def test_unrelated_numbers() -> None:
    assert _refusal(_QUERY, _GALLERY**3 + 1000) == _GENERAL


@pytest.mark.parametrize(
    ("near", "far", "example"),
    [("id{}", "ID_{:04d}", "'id1' and 'ID_0001'"), ("cat {:c}", "Cat-{:c}", "'cat a' and 'Cat-a'")],
)
def test_names_in_two_spellings(near: str, far: str, example: str) -> None:
    first = ord("a") - 1 if ":c" in near else 0
    query, gallery = ([form.format(first + pid) for pid in pids] for form, pids in ((near, _QUERY), (far, _GALLERY)))
    assert f"10 query pids may be gallery pids in another spelling, such as {example}: write them alike" in _refusal(
        query, gallery
    )


@pytest.mark.parametrize("form", ["camera 3 of {:c}", "{:c}7"])
def test_names_that_share_a_number_are_not_spellings(form: str) -> None:
    query, gallery = ([form.format(first + pid) for pid in pids] for first, pids in ((96, _QUERY), (106, _GALLERY)))
    assert _refusal(query, gallery) == _GENERAL


def test_labels_that_were_not_read_from_names(tmp_path: Path) -> None:
    """Each side was numbered for itself, and the paths hold the identities of the data set."""
    paths = {
        "query": np.array([f"query/{pid:04d}_c{row % 6 + 1}s1_000151_00.jpg" for row, pid in enumerate(_QUERY)]),
        "gallery": np.array(
            [f"bounding_box_test/{pid:04d}_c{row % 5 + 1}s1_000151_00.jpg" for row, pid in enumerate(_GALLERY)]
        ),
    }
    paths["gallery"][0] = "bounding_box_test/-1_c1s1_000401_03.jpg"
    query, gallery = _sets(_QUERY, _GALLERY**3 + 1000, paths)
    message = _refusal(_QUERY, _GALLERY**3 + 1000, paths)
    assert "the image paths hold 10 common pids in the layout 'market1501'" in message
    assert "--layout market1501" in message
    stores = []
    for name, side in (("query", query), ("gallery", gallery)):
        source = tmp_path / f"{name}.npz"
        np.savez(source, features=side.read(0, side.n_rows), image_paths=paths[name])
        stores += ingest(source, tmp_path / name, layout="market1501")
    assert evaluate(*stores).counts["n_valid"] > 0


def test_paths_that_hold_no_common_identity_either() -> None:
    sides = {"query": _QUERY, "gallery": _GALLERY + 500}
    paths = {name: np.array([f"{pid:04d}_c1s1_000151_00.jpg" for pid in pids]) for name, pids in sides.items()}
    assert "layout" not in _refusal(_QUERY, _GALLERY + 1000, paths)
