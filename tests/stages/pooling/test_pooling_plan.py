"""The cut of groups into blocks, against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist import FeatureSet
from reid_dist.stages import row_groups
from reid_dist.stages.row_groups import GroupBlocks, choose_cut, group_rows, rows_to_read

N_ROWS, DIM = 600, 8
ROW_BYTES = 4 * DIM


def stored(tmp_path, tracklets, chunk_rows: int = 10) -> FeatureSet:
    features = np.random.default_rng(2).standard_normal((len(tracklets), DIM)).astype(np.float32)
    made = FeatureSet.from_arrays(features, np.zeros(len(tracklets), int), columns={"tracklet": tracklets})
    return made.save(tmp_path / "set.zarr", chunk_rows=chunk_rows)


def ends(cut: GroupBlocks) -> list[tuple[int, int]]:
    """First group and end of every block."""
    return [(groups.start, groups.stop) for groups in cut]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of ten rows are read one by one, and blocks hold 100 rows."""
    monkeypatch.setattr("reid_dist.stores.featureset._READ_BYTES", 10 * ROW_BYTES)
    monkeypatch.setattr(row_groups, "_LEAST_BYTES", 100 * ROW_BYTES)
    monkeypatch.setattr(row_groups, "_MOST_BYTES", 100 * ROW_BYTES)


@pytest.mark.parametrize("most_groups", [1, 3, 1000])
@pytest.mark.parametrize("block_rows", [1, 7, 1000])
def test_every_group_is_in_one_block(most_groups: int, block_rows: int) -> None:
    sizes = np.random.default_rng(most_groups).integers(1, 9, 50)
    cut = GroupBlocks.of(sizes, most_groups, block_rows)
    blocks = ends(cut)
    assert [group for start, stop in blocks for group in range(start, stop)] == list(range(50))
    assert max(stop - start for start, stop in blocks) <= most_groups
    # Whatever the size of its first group.
    assert all(sizes[start + 1 : stop].sum() < block_rows for start, stop in blocks)
    assert [blocks[block] for block in cut.holding(np.arange(50))] == [
        (start, stop) for start, stop in blocks for _ in range(start, stop)
    ]


def test_a_block_ends_where_the_last_row_of_a_group_exceeds_the_rows() -> None:
    assert ends(GroupBlocks.of(np.array([4, 6, 3, 25, 1, 1]), 100, 10)) == [(0, 2), (2, 3), (3, 6)]
    assert ends(GroupBlocks.of(np.array([1, 1, 1, 1, 1]), 2, 10)) == [(0, 2), (2, 4), (4, 5)]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("limits", [(1000, 1000), (7, 1000), (1000, 37), (1, 1)])
def test_rows_to_read_are_those_of_all_chunks_that_hold_rows_of_a_block(tmp_path, limits: tuple[int, int]) -> None:
    tracklets = np.minimum(np.random.default_rng(0).geometric(0.03, 595), 60)
    features = stored(tmp_path, tracklets)
    groups = group_rows(features, "tracklet")
    cut = GroupBlocks.of(groups.size, *limits)
    expected = 0
    for start, stop in ends(cut):
        chunks = {row // 10 for row in range(595) if start <= groups.of_row[row] < stop}
        expected += sum(min(10, 595 - 10 * chunk) for chunk in chunks)
    assert rows_to_read(features, groups, cut) == expected


def test_contiguous_groups_are_cut_into_short_blocks_and_scattered_ones_are_not(tmp_path) -> None:
    tracklets = np.arange(N_ROWS) // 10
    near = stored(tmp_path / "near", tracklets)
    far = stored(tmp_path / "far", np.random.default_rng(1).permutation(tracklets))
    limits = {"sums_bytes": 1 << 20, "n_threads": 2, "memory_per_thread": 1 << 30}
    short = choose_cut(near, group_rows(near, "tracklet"), **limits)
    assert len(short) == 6
    whole = choose_cut(far, group_rows(far, "tracklet"), **limits)
    assert ends(whole) == [(0, 60)]


@pytest.mark.parametrize("limits", [{"sums_bytes": 8 * DIM * 7}, {"memory_per_thread": 4 * 8 * DIM * 7}])
def test_the_sums_of_a_block_fit(tmp_path, limits: dict[str, int]) -> None:
    features = stored(tmp_path, np.random.default_rng(1).permutation(np.arange(N_ROWS) // 10))
    groups = group_rows(features, "tracklet")
    cut = choose_cut(
        features, groups, **{"sums_bytes": 1 << 20, "n_threads": 2, "memory_per_thread": 1 << 30, **limits}
    )
    assert max(stop - start for start, stop in ends(cut)) == 7
