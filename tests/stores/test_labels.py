"""Labels in all accepted forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist import evaluate
from reid_dist.errors import InputError
from reid_dist.stores import FeatureSet, FeatureWriter
from reid_dist.stores.labels import as_numbers, number_jointly


def pids_of(values: Any) -> FeatureSet:
    n = np.asarray(values).size
    return FeatureSet.from_arrays(np.ones((n, 2), np.float32), values)


@pytest.mark.parametrize(
    "values",
    [[[3, 1, -1]], [[3], [1], [-1]], [3.0, 1.0, -1.0], ["3", "1", "-1"], np.array([b"3", b"1", b"-1"]),
     np.array(["0003", "0001", "-1"]), np.array(["3", "1", "-1"], dtype=object), np.array([3, 1, -1], np.int8)],
)  # fmt: skip
def test_numbers_in_many_forms(values: Any) -> None:
    found = pids_of(values)
    assert found.pids.tolist() == [3, 1, -1]
    assert found.pids.dtype == np.int64
    assert found.pid_names is None


def test_text_is_numbered_in_sorted_order() -> None:
    found = pids_of(["mary", "-1", "ann", "mary", "zoe"])
    assert found.pids.tolist() == [2, -1, 1, 2, 3]
    assert found.pid_names == ("ann", "mary", "zoe")


def test_decimal_texts_that_would_collide_stay_apart() -> None:
    found = pids_of(["1", "01", "1", "7"])
    assert found.pids.tolist() == [2, 1, 2, 3]
    assert found.pid_names == ("01", "1", "7")


def test_text_of_two_sets_is_numbered_jointly() -> None:
    (query, gallery), names = number_jointly([["bob"], ["ann", "-1", "bob"]], "pids")
    assert (query.tolist(), gallery.tolist()) == ([2], [1, -1, 2])
    assert names.tolist() == ["ann", "bob"]
    with pytest.raises(InputError, match="text in one set and numbers in the other"):
        number_jointly([["bob"], [1, 2]], "pids")


@pytest.mark.parametrize(
    ("values", "what"),
    [([1.5, 2], "row 0 holds 1.5"), ([1, np.nan], "row 1 holds nan"), ([[1, 2], [3, 4]], "one label per row"),
     ([True, False], "not bool"), (np.array([1, None]), "object array"), ([1j, 2], "complex"),
     (np.array([2**63], np.uint64), "whole numbers"), (["a", ""], "empty text in row 1"), ([2.0**54, 1], "whole")],
)  # fmt: skip
def test_what_is_no_label_is_refused(values: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        as_numbers(values, "pids")


class BFloat16Tensor:
    """The part of a torch tensor of bfloat16 that is used: `float` rounds to eight bits, half to even."""

    dtype = "torch.bfloat16"

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values, np.float32)

    def detach(self) -> BFloat16Tensor:
        return self

    def cpu(self) -> BFloat16Tensor:
        return self

    def float(self) -> BFloat16Tensor:
        bits = self._values.view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return BFloat16Tensor(rounded.view(np.float32))

    def numpy(self) -> np.ndarray:
        return self._values


FLOATS = {
    "bfloat16": (BFloat16Tensor, 256), "float16": (np.float16, 2048), "float32": (np.float32, 1 << 24),
    "float64": (np.float64, 1 << 53),
}  # fmt: skip


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("label", ["pids", "camids", "item_ids", "columns"])
def test_a_float_is_a_label_as_far_as_it_tells_whole_numbers_apart(kind: str, label: str) -> None:
    make, most = FLOATS[kind]

    def labelled_by(values: list[int]) -> np.ndarray:
        given = make(values) if make is BFloat16Tensor else np.array(values, make)
        changes = {"columns": {"clothes": given}} if label == "columns" else {label: given}
        found = labelled(**changes)
        return found.columns["clothes"] if label == "columns" else getattr(found, label)

    # Up to the bound the type holds every whole number, and the next one it rounds.
    assert labelled_by([most, most - 1, 2]).tolist() == [most, most - 1, 2]
    assert labelled_by([-most, 1 - most, 2]).tolist() == [-most, 1 - most, 2]
    name = "clothes" if label == "columns" else label
    with pytest.raises(
        InputError, match=f"{name}: row 1 holds {most + 2} as {kind}, .* up to {most:,}; .*int64 or as te"
    ):
        labelled_by([1, most + 2, 2])


def test_blocks_of_labels_of_several_types_are_not_joined_as_floats(tmp_path: Path) -> None:
    """Numpy joins int64 with float32 or uint64 as float64, in which 2**53 + 1 is 2**53."""
    with FeatureWriter(tmp_path / "a.zarr", dim=2) as writer:
        for pids in (np.array([2**53 + 1]), np.array([7.0], np.float32), np.array([9], np.uint64)):
            writer.append(np.ones((1, 2), np.float32), pids=pids)
    assert FeatureSet.open(tmp_path / "a.zarr").pids.tolist() == [2**53 + 1, 7, 9]


def test_numbers_beyond_int64_are_refused_with_the_reason_and_are_names_as_text() -> None:
    with pytest.raises(InputError, match=r"pids: row 1 holds 9223372036854775808, .* up to 9223372036854775807 .*text"):
        pids_of(np.array([1, 2**63], np.uint64))
    assert pids_of(np.array([1, 2**63 - 1], np.uint64)).pids.tolist() == [1, 2**63 - 1]
    assert pids_of(["9223372036854775808", "9223372036854775809"]).pids.tolist() == [1, 2]


def test_item_ids_may_be_numbers_or_text() -> None:
    features = np.ones((2, 2), np.float32)
    numbers = FeatureSet.from_arrays(features, [1, 2], item_ids=[5, 6]).item_ids
    texts = FeatureSet.from_arrays(features, [1, 2], item_ids=["5", "06"]).item_ids
    assert numbers.tolist() == [5, 6]
    assert texts.tolist() == ["5", "06"]


@pytest.mark.parametrize("name", ["../up", "a/b", "", "1a", ".", "a b"])
def test_column_names_stay_inside_the_store(name: str) -> None:
    with pytest.raises(InputError, match="column name"):
        FeatureSet.from_arrays(np.ones((1, 2)), [1], columns={name: [1]})


def test_labels_do_not_change_with_the_array_they_came_from() -> None:
    pids = np.array([1, 2])
    found = FeatureSet.from_arrays(np.ones((2, 2), np.float32), pids)
    pids[0] = 9
    assert found.pids.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        found.pids[0] = 3


def labelled(**changes: Any) -> FeatureSet:
    labels = {
        "pids": [4, 4, -1], "camids": [0, 1, 2], "item_ids": ["a", "b", "c"], "columns": {"clothes": [1, 1, 2]},
        "image_paths": ["x", "y", "z"], "features": np.eye(3, dtype=np.float32),
    }  # fmt: skip
    return FeatureSet.from_arrays(**(labels | changes))


@pytest.mark.parametrize(
    "changes",
    [{"features": np.eye(3, 7, dtype=np.float16)}, {"features": np.ones((3, 2), np.float32)},
     {"image_paths": None}, {"image_paths": ["other", "places", "now"]}, {"pids": np.array([4.0, 4.0, -1.0])},
     {"item_ids": np.array(["a", "b", "c"], dtype="<U40")}],
)  # fmt: skip
def test_the_digest_of_labels_sees_neither_features_nor_paths_nor_how_labels_are_kept(changes: dict[str, Any]) -> None:
    changed = labelled(**changes)
    assert changed.labels_digest == labelled().labels_digest
    assert changed.describe()["labels_digest"] == labelled().labels_digest


def test_the_digest_of_labels_sees_every_label_and_the_texts_behind_numbers() -> None:
    sets = [
        labelled(), labelled(pids=[4, 5, -1]), labelled(pids=[4, -1, 4]), labelled(camids=[0, 1, 1]),
        labelled(camids=None), labelled(item_ids=["a", "b", "d"]), labelled(item_ids=[1, 2, 3]),
        labelled(item_ids=None), labelled(columns=None), labelled(columns={"clothes": [1, 2, 2]}),
        labelled(columns={"place": [1, 1, 2]}), labelled(pids=["ann", "ann", "bob"]),
        labelled(pids=["ann", "ann", "eve"]), labelled(pids=[1, 1, 2]),
        labelled(camids=["north", "south", "west"]), labelled(camids=["n", "s", "w"]),
    ]  # fmt: skip
    digests = [each.labels_digest for each in sets]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 64 and int(digest, 16) >= 0 for digest in digests)


def test_arrays_and_stores_share_the_digest_of_their_labels(tmp_path: Path) -> None:
    held = labelled(pids=["ann", "ann", "-1"])
    stored = held.save(tmp_path / "a.zarr")
    other = labelled(pids=["ann", "ann", "-1"], features=-np.eye(3)).save(tmp_path / "b.zarr", chunk_rows=2)
    assert FeatureSet.open(tmp_path / "a.zarr").labels_digest == stored.labels_digest == held.labels_digest
    assert other.labels_digest == held.labels_digest
    assert other.content_digest != held.content_digest


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["-1.000000000000000000e+00", "3.000000000000000000e+00"], [-1, 3]),
        (["1.0", "1", "+2", "2e0", "20e-1", ".1E1"], [1, 1, 2, 2, 2, 1]),
        (["0001", "-1.0", "1"], [1, -1, 1]),
    ],
)
def test_numbers_in_any_notation_are_numbers(texts: list[str], numbers: list[int]) -> None:
    found = pids_of(texts)
    assert found.pids.tolist() == numbers
    assert found.pid_names is None


@pytest.mark.parametrize("wrong", ["1.5", "nan", "inf", "1e400", "1e-400", "123456789012345678901.0", "1e999999999"])
def test_numbers_that_are_not_whole_are_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=f"pids must be whole numbers: row 2 holds {wrong}"):
        pids_of(["1.0", "2.0", wrong, "4.0"])


def test_junk_among_words_is_junk_in_any_notation() -> None:
    found = pids_of(["ann", "-1.000e+00", "bob", "-1", "1.5"])
    assert found.pids.tolist() == [2, -1, 3, -1, 1]
    assert found.pid_names == ("1.5", "ann", "bob")


def test_digits_are_the_same_number_in_both_sets() -> None:
    """One rule for joint and for separate sets: digits are a number unless a set holds two spellings of it."""
    (query, gallery), names = number_jointly([["01", "2"], ["1", "02"]], "pids")
    assert (query.tolist(), gallery.tolist(), names) == ([1, 2], [1, 2], None)
    (query, gallery), names = number_jointly([["01", "2"], ["1", "02", "distractor"]], "pids")
    assert (query.tolist(), gallery.tolist()) == ([1, 2], [1, 2, 3])
    (query, gallery), names = number_jointly([["01", "1"], ["1", "x"]], "pids")
    assert query[1] == gallery[0] != query[0]
    (query, gallery), names = number_jointly([["0001", "-1", "x"], [1, -1]], "pids")
    assert (query.tolist(), gallery.tolist()) == ([1, -1, 2], [1, -1])


def relevant(query: FeatureSet, gallery: FeatureSet, **options: Any) -> list[int]:
    found: list[int] = evaluate(query, gallery, **options).per_query["n_relevant"].tolist()
    return found


def side(pids: Any, camids: Any = None, item_ids: Any = None) -> FeatureSet:
    features = np.random.default_rng(len(pids)).standard_normal((len(pids), 3)).astype(np.float32)
    return FeatureSet.from_arrays(features, pids, camids, item_ids)


@pytest.mark.parametrize("numbers", [["0001", "0002", "0003"], [1, 2, 3], ["1", "2.0", "3"]])
def test_a_word_on_one_side_does_not_separate_numbers(numbers: Any) -> None:
    """Distractors and junk included; as an oracle, the same evaluation with all identities as whole numbers."""
    texts = ["0002", "0001", "distractor", "0002", "-1", "0000"]
    plain = [2, 1, 900, 2, -1, 0]
    query, gallery = side(numbers), side(texts)
    expected = evaluate(side([1, 2, 3]), side(plain), protocol="no_cameras")
    for near, far, oracle in (
        (query, gallery, expected),
        (gallery, query, evaluate(side(plain), side([1, 2, 3]), protocol="no_cameras")),
    ):
        found = evaluate(near, far, protocol="no_cameras")
        np.testing.assert_array_equal(found.per_query["n_relevant"], oracle.per_query["n_relevant"])
        assert found.metrics["mAP"] == oracle.metrics["mAP"]
        assert found.counts["n_junk"] == oracle.counts["n_junk"]
    assert expected.per_query["n_relevant"].tolist() == [1, 2, 0]
    assert relevant(side([0, 1]), gallery, protocol="no_cameras") == [1, 1]


def test_cameras_that_are_text_on_one_side() -> None:
    query = side(["a", "a"], ["01", "02"])
    gallery = side(["a", "a", "a"], ["1", "2", "roof"])
    assert relevant(query, gallery) == [2, 2]
    assert relevant(side(["a"], [2]), gallery) == [2]
    assert evaluate(query, gallery).counts["n_junk"] == 2


def test_a_number_with_two_spellings_on_the_other_side_is_unclear() -> None:
    gallery = side(["1", "01", "7"])
    with pytest.raises(InputError, match="pids of the query set hold 1, which the gallery set writes as '01' and '1'"):
        evaluate(side([1, 7]), gallery, protocol="no_cameras")
    assert relevant(side([7]), gallery, protocol="no_cameras") == [1]
    assert relevant(side(["01", "x"]), gallery, protocol="no_cameras") == [1, 0]


@pytest.mark.parametrize(
    ("near", "far", "own"),
    [
        (["01", "2"], ["1", "02", "3"], [0, 1]),
        ([1, 2], ["01", "2", "x"], [0, 1]),
        (["01", "1"], ["1", "x", "01"], [2, 0]),
    ],
)
def test_item_ids_go_by_the_rule_of_pids(near: Any, far: Any, own: list[int]) -> None:
    """As an oracle, item ids as the rows that they mean."""
    pids = [5] * len(far)
    found = relevant(side([5, 5], item_ids=near), side(pids, item_ids=far), protocol="same_set")
    expected = relevant(side([5, 5], item_ids=own), side(pids, item_ids=[0, 1, 2]), protocol="same_set")
    assert found == expected == [2, 2]
    with pytest.raises(InputError, match="none are equal; give both the same kind"):
        evaluate(side([5], item_ids=[9]), side(pids, item_ids=["a", "b", "c"]), protocol="same_set")
