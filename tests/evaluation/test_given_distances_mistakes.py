"""Files and arrays that are no block of distances, and options that do not fit one."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples

from reid_dist import DistanceBlock, LabelledRows, evaluate_distances
from reid_dist.errors import InputError, StoreError, StoreNotFoundError


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


GOOD = npy(np.linspace(0, 1, 35).reshape(5, 7))


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(reid_dist, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="is a pipe and no file"):
        DistanceBlock.open(tmp_path / "pipe")
    labels = tmp_path / "labels.npz"
    np.savez(labels, query_pids=[1, 2], query_camids=[0, 0], gallery_pids=[1, 2], gallery_camids=[1, 1])
    done = reid_dist("evaluate", labels, labels, "--lists", tmp_path / "pipe")
    done.assert_refused("is a pipe and no file")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (npy(np.array([[0.0, 1.0], [np.nan, 2.0]])), "holds nan at query 1, gallery row 0"),
        (npy(np.array([[0.0, np.inf]], np.float16)), "holds inf at query 0, gallery row 1"),
        (npy(np.array([[0.0, 1.0, -np.inf]], np.float32)), "holds -inf at query 0, gallery row 2"),
        (npy(np.zeros(5)), r"2-D array of float16, float32 or float64 \(n_query, n_gallery\), found float64 \(5,\)"),
        (npy(np.zeros((2, 3, 1))), r"found float64 \(2, 3, 1\)"),
        (npy(np.zeros((2, 3), int)), r"found int64 \(2, 3\)"),
        (npy(np.zeros((2, 3), complex)), "found complex128"),
        (npy(np.zeros((2, 3), np.longdouble)), rf"found {np.dtype(np.longdouble)} \(2, 3\)"),
        (npy(np.zeros((2, 3), [("a", "f4")])), r"\(2, 3\)"),
        (npy(np.zeros((0, 3))), r"found float64 \(0, 3\)"),
        (npy(np.array([[1.0, None]], dtype=object)), r"no \.npy file of distances: .*[Oo]bject"),
        (pickle.dumps([[0.0, 1.0]]), r"no \.npy file of distances"),
        (b"", r"no \.npy file of distances"),
        (b"0.1 0.2\n0.3 0.4\n", r"no \.npy file of distances; write the array with numpy\.save"),
        (GOOD[:6], r"no \.npy file of distances"),
        (GOOD[:-1], r"no \.npy file of distances"),
        (GOOD[:10] + b"{{{(((" + GOOD[16:], r"no \.npy file of distances"),
        (GOOD[:10] + b"\xff" * 60 + GOOD[70:], r"no \.npy file of distances"),
        (b"PK\x03\x04 and so on", r"no \.npy file of distances"),
    ],
    ids=[
        *("nan", "inf", "minus_inf", "1-D", "3-D", "whole_numbers", "complex", "long_double", "struct"),
        *("no_queries", "objects", "pickle", "empty", "text", "magic", "cut"),
        *("header", "header_bytes", "zip"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_block(content, part, tmp_path):
    path = tmp_path / "block.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=part) as refused:
        DistanceBlock.open(path)
    assert "\n" not in str(refused.value)
    assert "block.npy" in str(refused.value)


@settings(max_examples=examples(80))
@given(place=st.integers(0, 127), byte=st.integers(0, 255))
def test_a_damaged_header_is_refused_or_harmless(place, byte, tmp_path_factory):
    content = bytearray(GOOD)
    content[place] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    path.write_bytes(content)
    message = ""
    try:
        block = DistanceBlock.open(path)
    except InputError as refused:
        message = str(refused)
    else:
        assert block.shape[0] * block.shape[1] <= 35
    assert "\n" not in message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(StoreNotFoundError, match=r"there is no distance block '.*none\.npy'"):
        DistanceBlock.open(tmp_path / "none.npy")
    with pytest.raises(InputError, match="directory"):
        DistanceBlock.open(tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        np.array([[0.0, np.nan]]),
        np.zeros(4),
        np.zeros((2, 3), int),
        np.zeros((2, 3), np.longdouble),
        np.zeros((0, 4)),
        np.array([[1.0, None]]),
        [[1.0, 2.0], [3.0]],
        "block.npy",
        None,
    ],
    ids=["nan", "1-D", "int", "long_double", "empty", "objects", "ragged", "path", "none"],
)
def test_an_array_that_is_no_block(values):
    with pytest.raises(InputError, match=r"distance block|holds nan"):
        DistanceBlock.from_array(values)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        DistanceBlock.from_array(np.eye(2)).save(tmp_path / "file" / "block.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (5, 4), (4, 6), (1, 20)])
def test_a_block_of_another_shape(shape):
    query, gallery = LabelledRows([1, 2, 1, 2]), LabelledRows([1, 2, 3, 1, 2])
    with pytest.raises(
        InputError, match=f"is {shape[0]} x {shape[1]}, and there are labels of 4 queries and 5 gallery"
    ):
        evaluate_distances(DistanceBlock.from_array(np.zeros(shape)), query, gallery, protocol="no_cameras")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"distance": "cosine"}, "distance is not available for distances"),
        ({"tie": True}, "unknown option 'tie'; did you mean 'ties'"),
        ({"protocol": "market1501"}, "needs camids, and query and gallery have none"),
        ({"breakdowns": ["clothes"]}, "unknown breakdown 'clothes'"),
    ],
)
def test_options_are_those_of_evaluate(options, part):
    block = DistanceBlock.from_array(np.arange(20.0).reshape(4, 5))
    query, gallery = LabelledRows([1, 2, 1, 2]), LabelledRows([1, 2, 3, 1, 2])
    with pytest.raises(InputError, match=part):
        evaluate_distances(block, query, gallery, **{"protocol": "no_cameras", **options})
