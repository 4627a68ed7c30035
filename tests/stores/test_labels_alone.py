"""Labels without features: found in every file as they are found beside features."""

from __future__ import annotations

import numpy as np
import pytest
from array_files import write_arrays

from reid_dist import FeatureSet
from reid_dist.errors import InputError
from reid_dist.stores import open_labels

ROLES = ("query", "gallery")


def labels(n, seed):
    rng = np.random.default_rng(seed)
    names = ("pids", "camids", "item_ids", "clothes", "columns/weather", "columns/time_of_day")
    return {name: rng.integers(0, 50, n) for name in names}


def assert_same_labels(found, expected):
    assert found.labels.keys() == expected.labels.keys()
    for name, values in expected.labels.items():
        np.testing.assert_array_equal(found.labels[name], values, err_msg=name)
    assert found.labels_digest == expected.labels_digest


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet"])
def test_columns_of_one_set(suffix, tmp_path):
    """Labels without a prefix serve either side; every column is there, customary or one's own."""
    given = labels(7, seed=1)
    path = write_arrays(tmp_path / f"labels{suffix}", given)
    for role in ROLES:
        found = open_labels(path, role)
        assert set(found.columns) == {"clothes", "weather", "time_of_day"}
        for name in ("weather", "time_of_day"):
            np.testing.assert_array_equal(found.columns[name], given[f"columns/{name}"])


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_columns_of_both_sides(suffix, tmp_path):
    """Each side has its columns, and none of the other side."""
    sides = {role: labels(5 + 4 * i, seed=i) for i, role in enumerate(ROLES)}
    del sides["gallery"]["columns/weather"]
    arrays = {f"{role}_{name}": values for role, side in sides.items() for name, values in side.items()}
    path = write_arrays(tmp_path / f"labels{suffix}", arrays)
    query, gallery = (open_labels(path, role) for role in ROLES)
    assert set(query.columns) == {"clothes", "weather", "time_of_day"}
    assert set(gallery.columns) == {"clothes", "time_of_day"}
    for role, found in zip(ROLES, (query, gallery), strict=True):
        np.testing.assert_array_equal(found.pids, sides[role]["pids"])
        np.testing.assert_array_equal(found.columns["time_of_day"], sides[role]["columns/time_of_day"])


def test_labels_of_a_store(tmp_path):
    given = labels(8, seed=3)
    features = FeatureSet.from_arrays(np.eye(8, dtype=np.float32), given["pids"], given["camids"],
                                      columns={"weather": given["columns/weather"]})  # fmt: skip
    features.save(tmp_path / "query.zarr")
    for place in (tmp_path / "query.zarr", tmp_path):
        assert_same_labels(open_labels(place, "query"), features)


def test_a_group_of_another_program(tmp_path):
    # A "/" in a name would make a group of it.
    given = {name: values for name, values in labels(4, seed=4).items() if "/" not in name}
    found = open_labels(write_arrays(tmp_path / "group.zarr", given), "gallery")
    assert set(found.columns) == {"clothes"}
    np.testing.assert_array_equal(found.pids, given["pids"])


@pytest.mark.parametrize(
    ("name", "values", "part"),
    [
        ("columns/weather", np.array(["sun", "rain", "sun"]), "column 'weather' must be whole numbers, not text"),
        ("columns/weather", np.array([1, 2]), "columns/weather has 2 entries for 3 rows"),
        ("columns/weather", np.array([1.5, 2, 3]), "weather must be whole numbers: row 0 holds 1.5"),
        ("columns/1st", np.arange(3), "column name '1st' must be a letter followed by"),
        ("columns/", np.arange(3), "column name '' must be a letter followed by"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path, name, values, part):
    path = write_arrays(tmp_path / "labels.npz", {"pids": np.arange(3), name: values})
    with pytest.raises(InputError) as refused:
        open_labels(path, "query")
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)
