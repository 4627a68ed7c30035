"""Rows that a program writes as they come: the store of the same rows at once, or nothing that looks whole."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reid_dist import FeatureSet, FeatureWriter, append
from reid_dist.errors import IncompleteStoreError, InputError
from reid_dist.stores import check_store
from reid_dist.stores.featureset import read_kept

KINDS = {
    "float32": np.float32,
    "float16": np.float16,
    "float64": np.float64,
    "uint8": np.uint8,
    "bool": np.bool_,
}


def arrays(n: int, kind: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "features": rng.integers(0, 200, (n, 5)).astype(KINDS[kind]),
        "pids": np.array(["anna", "7", "-1", "bob"])[rng.integers(0, 4, n)],
        "camids": rng.integers(0, 4, n).astype(np.float32),
        "item_ids": rng.permutation(n),
        "image_paths": np.array([f"{'x' * (each % 9)}/{each}.jpg" for each in range(n)]),
        "columns": {"tracklet": rng.integers(0, 50, n)},
    }


def cut(given_arrays: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {
        name: {key: each[start:stop] for key, each in values.items()} if name == "columns" else values[start:stop]
        for name, values in given_arrays.items()
    }


@settings(max_examples=12)
@given(
    sizes=st.lists(st.integers(0, 1300), min_size=1, max_size=6).filter(any),
    kind=st.sampled_from(sorted(KINDS)),
    chunk_rows=st.one_of(st.none(), st.integers(1, 1500)),
    seed=st.integers(0, 1000),
)
def test_the_store_is_that_of_all_rows_at_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], kind: str, chunk_rows: int | None, seed: int
) -> None:
    folder, n = tmp_path_factory.mktemp("written"), sum(sizes)
    held, ends = arrays(n, kind, seed), [0, *np.cumsum(sizes).tolist()]
    whole = FeatureSet.from_arrays(**held)
    with FeatureWriter(folder / "a.zarr", chunk_rows=chunk_rows and max(chunk_rows, n // 20)) as writer:
        for start, stop in pairwise(ends):
            writer.append(**cut(held, start, stop))
    found = FeatureSet.open(folder / "a.zarr")
    assert writer.n_rows == n
    assert found.content_digest == whole.content_digest
    assert found.dtype == whole.dtype
    assert found.notes == whole.notes
    assert found.content_digest == whole.save(folder / "b.zarr").content_digest
    shutil.rmtree(folder)


def test_one_store_of_each_rank_is_joined(tmp_path: Path) -> None:
    held = arrays(900, "float32", 0)
    whole, stores = FeatureSet.from_arrays(**held), []
    for rank, (start, stop) in enumerate(pairwise((0, 500, 501, 900))):
        with FeatureWriter(tmp_path / f"rank{rank}.zarr") as writer:
            for first in range(start, stop, 64):
                writer.append(**cut(held, first, min(first + 64, stop)))
        stores.append(FeatureSet.open(writer.uri))
    assert FeatureSet.concat(stores).content_digest == whole.content_digest
    for later in stores[1:]:
        append(stores[0].uri, later.uri)
    assert FeatureSet.open(stores[0].uri).content_digest == whole.content_digest


def test_arrays_that_the_caller_fills_again(tmp_path: Path) -> None:
    """As data loaders do with their batches."""
    features, pids, camids = np.empty((4, 3), np.float32), np.empty(4, np.int64), np.empty(4, "<U3")
    rng = np.random.default_rng(0)
    kept: list[list[np.ndarray]] = []
    with FeatureWriter(tmp_path / "a.zarr") as writer:
        for batch in range(5):
            features[:], pids[:], camids[:] = rng.standard_normal((4, 3)), batch, f"c{batch}"
            kept.append([features.copy(), pids.copy(), camids.copy()])
            writer.append(features, pids=pids, camids=camids)
    expected = FeatureSet.from_arrays(*(np.concatenate(each) for each in zip(*kept, strict=True)))
    assert FeatureSet.open(tmp_path / "a.zarr").content_digest == expected.content_digest


def test_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    features = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        place = tmp_path / f"{dtype}.zarr"
        with FeatureWriter(place) as writer:
            writer.append(features[:0].to(dtype), pids=torch.arange(0))
            for start in range(0, 30, 7):
                rows = slice(start, start + 7)
                writer.append(features[rows].to(dtype), pids=torch.arange(30)[rows], camids=torch.ones(30).int()[rows])
        expected = FeatureSet.from_arrays(features.to(dtype), torch.arange(30), torch.ones(30).int())
        assert FeatureSet.open(place).content_digest == expected.content_digest


def test_what_is_rounded_only_by_choice(tmp_path: Path) -> None:
    """The dtype of the first block is that of the store."""
    half, single = np.ones((2, 2), np.float16), np.full((2, 2), 0.1, np.float32)
    with FeatureWriter(tmp_path / "a.zarr") as writer:
        writer.append(half, pids=[1, 2])
        with pytest.raises(InputError, match=r"earlier blocks are float16 and this one is float32.*dtype='float16'"):
            writer.append(single, pids=[3, 4])
    assert FeatureSet.open(tmp_path / "a.zarr").n_rows == 2
    with FeatureWriter(tmp_path / "b.zarr", dtype="float16") as writer:
        writer.append(single, pids=[3, 4])
        writer.append(half, pids=[1, 2])
    assert read_kept(FeatureSet.open(tmp_path / "b.zarr"), 0, 1)[0, 0] == np.float16(0.1)
    with FeatureWriter(tmp_path / "c.zarr") as writer:
        writer.append(single, pids=[3, 4])
        writer.append(half, pids=[1, 2])
    joined = np.concatenate([single, half], dtype=np.float32)
    assert (
        FeatureSet.open(tmp_path / "c.zarr").content_digest
        == FeatureSet.from_arrays(joined, [3, 4, 1, 2]).content_digest
    )


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"features": np.ones((2, 4)), "pids": [1, 2]}, "of shape .2, 4. does not fit a store of 3 columns"),
        ({"features": np.ones(3), "pids": [1]}, r"must be \(n, dim\)"),
        ({"features": np.ones((2, 3)), "pids": [1, 2, 3]}, "pids has 3 entries for 2 rows of features"),
        ({"features": np.ones((2, 3)), "pids": ["anna", "bob"]}, "pids are text in one block and numbers in another"),
        ({"features": np.ones((2, 3))}, "this block gives no labels, earlier ones .'pids'.;"),
        ({"features": np.ones((2, 3)), "pids": [1, 2], "camids": [1, 2]}, "gives .'camids', 'pids'., earlier ones"),
        ({"features": np.array([["a", "b", "c"]]), "pids": [1]}, "must be floating point or whole numbers"),
    ],
)
def test_a_block_that_does_not_fit_leaves_no_trace(tmp_path: Path, block: dict[str, Any], message: str) -> None:
    first = np.full((2, 3), 2, np.float32)
    with FeatureWriter(tmp_path / "a.zarr") as writer:
        writer.append(first, pids=[1, 2])
        with pytest.raises(InputError, match=message):
            writer.append(**block)
        writer.append(first, pids=[3, 4])
    expected = FeatureSet.from_arrays(np.concatenate([first, first]), [1, 2, 3, 4])
    assert FeatureSet.open(tmp_path / "a.zarr").content_digest == expected.content_digest


@pytest.mark.parametrize("n_blocks", [0, 1, 5])
def test_an_exception_leaves_nothing(tmp_path: Path, n_blocks: int) -> None:
    class Stopped(Exception):
        pass

    def write() -> None:
        with FeatureWriter(tmp_path / "deep" / "a.zarr", chunk_rows=3) as writer:
            for block in range(n_blocks):
                writer.append(np.ones((4, 3), np.float32), pids=[block] * 4)
                with pytest.raises(IncompleteStoreError):
                    FeatureSet.open(writer.uri)
            raise Stopped

    with pytest.raises(Stopped):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "0 rows were given for .*, expected at least one"),
        ([([[1.0, np.nan]], [1])], r"NaN in 1 row \(row 0\)"),
        ([([[1.0, 2.0]], None)], "no pids were given"),
        ([([[1.0, 2.0]], [1]), ([[1.0, np.inf]], [1])], r"infinity in 1 row \(row 1\)"),
        ([([[1.0, 2.0]], [1.5])], "pids must be whole numbers: row 0 holds 1.5"),
    ],
)
def test_what_cannot_be_a_store_leaves_nothing(tmp_path: Path, blocks: list[tuple[Any, Any]], message: str) -> None:
    def write() -> None:
        with FeatureWriter(tmp_path / "a.zarr") as writer:
            for features, pids in blocks:
                writer.append(features, pids=pids)

    with pytest.raises(InputError, match=message):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [{"dim": 0}, {"n_rows": 0}, {"chunk_rows": 0}, {"dtype": "float64"}])
def test_options_that_cannot_be(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(InputError), FeatureWriter(tmp_path / "a.zarr", **option) as writer:
        writer.append([[1.0]], pids=[1])
    assert list(tmp_path.iterdir()) == []


def test_rows_are_on_disk_before_the_end(tmp_path: Path) -> None:
    """No more than a chunk of features is in memory."""
    with FeatureWriter(tmp_path / "a.zarr", chunk_rows=10) as writer:
        for block in range(7):
            writer.append(np.full((5, 3), block + 1, np.float32), pids=[block] * 5)
            assert len(list((tmp_path / "a.zarr").glob("features/c/*/0"))) == (5 * block + 5) // 10
    assert not check_store(tmp_path / "a.zarr").damaged


@pytest.mark.parametrize("end", ["commit", "abort", "finish", "with"])
def test_a_writer_that_has_ended_takes_no_more(tmp_path: Path, end: str) -> None:
    """It has no lock any more, and would write into a complete store."""
    place = tmp_path / "a.zarr"
    with FeatureWriter(place) as writer:
        writer.append(np.eye(3, dtype=np.float32), pids=[1, 2, 3])
        if end != "with":
            getattr(writer, end)()
            with pytest.raises(InputError, match="has been finished, and takes nothing more"):
                writer.append(np.eye(3, dtype=np.float32), pids=[4, 5, 6])
    with pytest.raises(InputError, match="has been finished, and takes nothing more"):
        writer.append(np.eye(3, dtype=np.float32), pids=[4, 5, 6])
    assert writer.is_committed == (end != "abort")
    if end == "abort":
        assert not list(tmp_path.iterdir())
        with pytest.raises(InputError, match="was aborted"):
            writer.commit()
    else:
        assert FeatureSet.open(place).pids.tolist() == [1, 2, 3]
        assert not check_store(place).damaged


def test_a_second_end_touches_nothing(tmp_path: Path) -> None:
    """Neither the store that replaced another, nor one that somebody else has written since."""
    place, rows = tmp_path / "a.zarr", np.eye(3, dtype=np.float32)
    FeatureSet.from_arrays(rows, [1, 1, 1]).save(place)
    with FeatureWriter(place, overwrite=True) as writer:
        writer.append(rows, pids=[1, 2, 3])
        writer.commit()
        writer.commit()
    writer.abort()
    assert FeatureSet.open(place).read(0, 3).tolist() == rows.tolist()
    with pytest.raises(ZeroDivisionError), FeatureWriter(tmp_path / "b.zarr") as writer:  # noqa: PT012
        writer.abort()
        FeatureSet.from_arrays(rows, [7, 8, 9]).save(tmp_path / "b.zarr")
        raise ZeroDivisionError
    assert FeatureSet.open(tmp_path / "b.zarr").pids.tolist() == [7, 8, 9]
