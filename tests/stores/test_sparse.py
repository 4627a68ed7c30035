"""Stored neighbour graphs: pieces are what was written, or an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from reid_dist.core.model import RowRange
from reid_dist.errors import DamagedStoreError, StoreError
from reid_dist.stores import sparse
from reid_dist.stores.sparse import GraphPiece, GraphWriter, StoredGraph

# Five items in pieces of two rows; the third row has no entry.
INDPTR = np.array([0, 2, 3, 3, 5, 6])
INDICES, WEIGHTS = np.array([0, 1, 1, 3, 4, 4], np.int32), np.array([0.5, 0.5, 1.0, 0.25, 0.75, 1.0])
LISTS = np.array([[0, 1], [1, 0], [2, -1], [3, 4], [4, 3]], np.int32)
DISTANCES = np.array([[0.0, 0.3], [0.0, 0.3], [0.0, np.inf], [0.0, 0.1], [0.0, 0.1]])


def rows_of(rows: RowRange) -> GraphPiece:
    here, entries = slice(rows.start, rows.stop), slice(INDPTR[rows.start], INDPTR[rows.stop])
    indptr = INDPTR[rows.start : rows.stop + 1] - INDPTR[rows.start]
    return GraphPiece(indptr, INDICES[entries], WEIGHTS[entries], LISTS[here], DISTANCES[here])


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sparse, "PIECE_ROWS", 2)
    place = str(tmp_path / "graph.zarr")
    with GraphWriter(place, (5, 6, 2), {"parameters": {"k": 2}}, overwrite=False) as writer:
        for rows in (RowRange(0, 2), RowRange(2, 4), RowRange(4, 5)):
            writer.append(rows_of(rows))
    return place


def test_pieces_are_what_was_written(uri: str) -> None:
    graph = StoredGraph.open(uri)
    assert graph.entry["parameters"] == {"k": 2}
    assert sum(path.stat().st_size for path in Path(uri).rglob("*") if path.is_file()) < 10_000
    for number, rows in enumerate((RowRange(0, 2), RowRange(2, 4), RowRange(4, 5))):
        for found, written in zip(graph.piece(number), rows_of(rows), strict=True):
            np.testing.assert_array_equal(found, written)
            assert found.dtype == written.dtype


@pytest.mark.parametrize("name", ["indptr", "indices", "weights", "neighbours/index", "neighbours/distance"])
def test_other_values_with_right_checksums_are_refused(uri: str, name: str) -> None:
    """Every array is part of the digest of its piece, and of no other piece's."""
    array = zarr.open_group(uri, mode="r+")[name]
    changed = np.asarray(array[:])
    # The second entry of row 3, the end of its entries, or its list.
    changed[4 if array.ndim == 1 else 3] = 0
    array[:] = changed
    graph = StoredGraph.open(uri)
    np.testing.assert_array_equal(graph.piece(0).weights, WEIGHTS[:3])
    with pytest.raises(DamagedStoreError, match=r"is damaged: rows 2 to 3: .*; save the graph again$"):
        graph.piece(1)


def test_a_graph_that_is_replaced_while_it_is_read_is_named(uri: str) -> None:
    graph = StoredGraph.open(uri)
    with GraphWriter(uri, (1, 1, 1), {}, overwrite=True) as writer:
        writer.append(GraphPiece(np.array([0, 1]), INDICES[:1], WEIGHTS[:1], LISTS[:1, :1], DISTANCES[:1, :1]))
    with pytest.raises(DamagedStoreError, match=r"was changed while in use, found at rows 0 to 1: .*; run again$"):
        graph.piece(0)
    assert StoredGraph.open(uri).piece(0).weights.tolist() == [0.5]


def test_a_graph_that_lacks_rows_is_not_committed(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"^2 rows with 3 entries were given for .*, expected 5 with 6$"),
        GraphWriter(tmp_path / "graph.zarr", (5, 6, 2), {}, overwrite=False) as writer,
    ):
        writer.append(rows_of(RowRange(0, 2)))
    assert list(tmp_path.iterdir()) == []
