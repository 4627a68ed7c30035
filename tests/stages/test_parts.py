"""Stages of rows by blocks: how they are read, and what a run computes of them."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reranking_runs import resources

from reid_dist.core.model import RowRange
from reid_dist.errors import RunFailedError
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.stages.parts import Blocks, Latest, Parts, RowStage, run
from reid_dist.stages.row_groups import GroupBlocks
from reid_dist.stages.session import Resources

BEGUN: list[int] = []
FAILING: set[int] = set()


@pytest.fixture(autouse=True)
def nothing_begun() -> Iterator[None]:
    BEGUN.clear()
    FAILING.clear()
    yield
    BEGUN.clear()
    FAILING.clear()


@dataclass(frozen=True)
class Squares(RowStage):
    """Squares of row numbers plus one number, and as many entries in a row as its number modulo 4."""

    kind: ClassVar[str] = "squares"
    progress: ClassVar[str] = "squares"

    plus: float
    words: str = field(default="", compare=False)

    def compute(self, rows: RowRange) -> dict[str, Any]:
        BEGUN.append(rows.start)
        if rows.start in FAILING:
            raise RunFailedError("broken")
        number = np.arange(rows.start, rows.stop)
        sizes = number % 4
        column = np.concatenate([np.arange(size) for size in [*sizes.tolist(), 0]]).astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        value = np.repeat(number + self.plus, sizes)
        return {"square": number**2 + self.plus, "indptr": indptr, "column": column, "value": value}


def expected_sparse(rows: np.ndarray) -> list[tuple[list[int], list[float]]]:
    return [(list(range(row % 4)), [row + 0.5] * (row % 4)) for row in rows.tolist()]


def by_row(found: SparseRows) -> list[tuple[list[int], list[float]]]:
    cuts = [slice(*ends) for ends in zip(found.indptr[:-1], found.indptr[1:], strict=True)]
    return [(found.column[cut].tolist(), found.value[cut].tolist()) for cut in cuts]


N_ROWS = 23


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> list[Parts]:
    """The same rows in blocks of several lengths, and in uneven ones."""
    blocks = [Blocks(N_ROWS, 1), Blocks(N_ROWS, 5), Blocks(N_ROWS, 100), GroupBlocks(N_ROWS, 9, (2, 11, 12, 20, 23))]
    folders = [tmp_path_factory.mktemp("cut") for _ in blocks]
    return [run(Squares(cut, 0.5), resources(folder)) for cut, folder in zip(blocks, folders, strict=True)]


@given(st.data())
def test_rows_are_read_by_range_and_by_item_in_any_cut(cuts: list[Parts], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, N_ROWS - 1))
    rows = RowRange(start, data.draw(st.integers(start + 1, N_ROWS)))
    items = np.array(sorted(data.draw(st.sets(st.integers(0, N_ROWS - 1), min_size=1))), np.int64)
    within = np.arange(rows.start, rows.stop)
    for parts in cuts:
        np.testing.assert_array_equal(parts.read(rows, "square")[0], within**2 + 0.5)
        np.testing.assert_array_equal(parts.read(items, "square")[0], items**2 + 0.5)
        assert by_row(parts.sparse(rows)) == expected_sparse(within)
        assert by_row(parts.sparse(items)) == expected_sparse(items)


def test_no_items_have_no_entries(cuts: list[Parts]) -> None:
    assert cuts[1].sparse(np.empty(0, np.int64)).indptr.tolist() == [0]


def test_a_run_goes_on_with_the_cut_of_an_earlier_one(tmp_path: Path) -> None:
    where = resources(tmp_path)
    FAILING.add(15)
    with pytest.raises(RunFailedError, match="broken"):
        run(Squares(Blocks(N_ROWS, 5), 0.5), where)
    (stage,) = where.workspace.stages("squares")
    kept = {int(part.removeprefix("rows-")) * 5 for part in stage.done()}
    assert kept <= {0, 5, 10, 20}
    FAILING.clear()
    BEGUN.clear()
    parts = run(Squares(Blocks(N_ROWS, 7), 0.5), where)
    assert parts.blocks == Blocks(N_ROWS, 5)
    assert set(BEGUN) == {0, 5, 10, 15, 20} - kept
    np.testing.assert_array_equal(parts.read(RowRange(0, N_ROWS), "square")[0], np.arange(N_ROWS) ** 2 + 0.5)
    BEGUN.clear()
    assert run(Squares(Blocks(N_ROWS, 2), 0.5), where) == parts
    assert BEGUN == []


def test_what_fails_before_anything_is_done_leaves_nothing(tmp_path: Path) -> None:
    where = resources(tmp_path)
    FAILING.update(range(N_ROWS))
    with pytest.raises(RunFailedError, match="broken"):
        run(Squares(Blocks(N_ROWS, N_ROWS), 0.5), where)
    assert list(tmp_path.iterdir()) == []


def test_fields_are_the_identity(tmp_path: Path) -> None:
    """To the last bit; neither the cut nor a field that is not compared."""
    where = resources(tmp_path)
    definitions = [
        Squares(Blocks(4, 4), 0.1),
        Squares(Blocks(4, 4), float(np.nextafter(0.1, 1))),
        Squares(Blocks(4, 2), 0.1, "x"),
    ]
    names = [run(each, where).identity for each in definitions]
    assert names[0] == names[2] != names[1]
    assert run(definitions[0], resources(tmp_path / "elsewhere")).identity == names[0]


def test_runs_take_turns(tmp_path: Path) -> None:
    """Of runs at the same time, one computes, and the others wait for it."""
    waited: list[str] = []

    def one(where: Resources) -> None:
        run(Squares(Blocks(N_ROWS, 3), 0.5), where)

    sides = [resources(tmp_path) for _ in range(4)]
    for side in sides:
        side.progress.warn = waited.append  # type: ignore[method-assign]
    threads = [threading.Thread(target=one, args=(side,)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(BEGUN) == list(range(0, N_ROWS, 3))
    assert all("another run works on" in line and line.endswith("waiting for it") for line in waited)
    assert not list(tmp_path.glob(".*"))


def test_parts_reach_workers_as_references(cuts: list[Parts]) -> None:
    for parts in cuts:
        sent = pickle.dumps(parts)
        assert len(sent) < 1000
        assert pickle.loads(sent) == parts


def test_one_table_is_kept() -> None:
    latest: Latest[list[int]] = Latest()
    made: list[int] = []

    def make(key: int) -> list[int]:
        return latest.get(key, lambda: [made.append(key) or key])  # type: ignore[func-returns-value]

    assert make(1) is make(1)
    assert make(2) == [2]
    assert make(1) == [1]
    latest.forget()
    assert make(1) == [1]
    assert made == [1, 2, 1, 1]
