"""Sums within segments against plain loops, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.core.segments import (
    entry_keys,
    entry_numbers,
    entry_owners,
    order_of_rows,
    owner_offsets,
    owners,
    range_entries,
    run_offsets,
    segment_offsets,
    segment_running_sums,
    segment_suffix_maxima,
    segment_sums,
    take_segments,
)
from reid_dist.core.sorted_values import is_among, places_among


@given(sizes=st.lists(st.integers(0, 40), max_size=20), seed=st.integers(0, 2**32 - 1))
def test_segments_are_loops(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = rng.standard_normal(indptr[-1]) * 10.0 ** rng.integers(-8, 8, indptr[-1])
    counts = rng.integers(0, 1000, indptr[-1])
    sums, running, maxima = [], [], []
    for start, stop in itertools.pairwise(indptr):
        total = 0.0
        for value in values[start:stop].tolist():
            total += value
        sums.append(total)
        running += np.cumsum(counts[start:stop]).tolist()
        maxima += [values[k:stop].max() for k in range(start, stop)]
    assert segment_sums(values, indptr).tobytes() == np.array(sums, float).tobytes()
    rows = segment_sums(np.stack([values, -2.0 * values], axis=1), indptr)
    assert rows.tolist() == [[total, -2.0 * total] for total in sums]
    assert segment_running_sums(counts, indptr).tolist() == running
    assert segment_suffix_maxima(values, indptr).tobytes() == np.array(maxima, float).tobytes()
    some = np.flatnonzero(rng.random(indptr[-1]) < 0.5)
    within = [[start <= place < stop for start, stop in itertools.pairwise(indptr)] for place in some]
    assert owners(some, indptr).tolist() == [each.index(True) for each in within]


@given(sizes=st.lists(st.integers(0, 6), max_size=12), seed=st.integers(0, 2**32 - 1))
def test_entries_are_loops(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = list(itertools.accumulate(sizes, initial=0))
    entries = [(segment, number) for segment, size in enumerate(sizes) for number in range(size)]
    indptr = segment_offsets(sizes)
    assert indptr.tolist() == ends
    assert indptr.dtype == np.int64
    assert entry_owners(indptr).tolist() == [segment for segment, _ in entries]
    assert entry_numbers(indptr).tolist() == [number for _, number in entries]
    assert owner_offsets(entry_owners(indptr), len(sizes)).tolist() == ends
    values = rng.integers(0, 9, ends[-1])
    wanted = [9 * segment + value for (segment, _), value in zip(entries, values.tolist(), strict=True)]
    assert entry_keys(indptr, values, 9).tolist() == wanted
    # Also of a part, whose first offset is not 0.
    assert entry_owners(indptr[1:]).tolist() == [segment - 1 for segment, _ in entries if segment]
    which = rng.integers(0, max(1, len(sizes)), 5 if sizes else 0)
    taken, place = take_segments(indptr, which)
    found = [place[start:stop].tolist() for start, stop in itertools.pairwise(taken)]
    assert found == [list(range(ends[segment], ends[segment + 1])) for segment in which.tolist()]
    start, length = rng.integers(0, 50, len(sizes)), np.array(sizes, np.int64)
    ranges = [place for begin, size in zip(start.tolist(), sizes, strict=True) for place in range(begin, begin + size)]
    assert range_entries(start, length)[1].tolist() == ranges
    keys = rng.integers(0, 3, (2, ends[-1]))
    runs = [len(list(run)) for _, run in itertools.groupby(keys.T.tolist())]
    assert run_offsets(*keys).tolist() == list(itertools.accumulate(runs, initial=0))


@given(st.lists(st.integers(-3, 3), max_size=8), st.lists(st.integers(-4, 4), max_size=8))
def test_look_ups_are_those_of_lists(known: list[int], wanted: list[int]) -> None:
    known.sort()
    places = [known.index(each) if each in known else -1 for each in wanted]
    for kind in (np.int64, np.float64, np.str_):
        # Texts of one letter.
        values, some = (
            np.array([chr(70 + each) if kind is np.str_ else each for each in n], kind) for n in (known, wanted)
        )
        assert places_among(values, some).tolist() == places
        assert is_among(values, some[:, None]).tolist() == [[place >= 0] for place in places]


@pytest.mark.parametrize("span", [0, 1, 2**16 - 1, 2**16, 2**40])
def test_order_of_rows_is_stable(span: int) -> None:
    rows = 5 + np.random.default_rng(2).choice([0, span, span // 3], 200)
    assert order_of_rows(rows).tolist() == sorted(range(200), key=lambda at: rows[at])
    assert order_of_rows(rows[:0]).tolist() == []
