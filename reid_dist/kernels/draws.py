"""Seeded draws of one item per gallery identity: what is drawn follows from a key, not from the order of the work.

The item that repeat ``t`` draws for query row ``q`` from an identity is a function of (seed, t, q, pid) and of the
items that the query sees of that identity.  So nobody has to draw galleries: an item that comes before the drawn
positive of its query counts for a repeat if it is the one that the key draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.items import ItemTable, kept_items
from reid_dist.kernels.placing import ScreenedTile, make_scratch, place_row
from reid_dist.kernels.settings import kernel

__all__ = ["Draws", "draw_states", "draw_tile", "drawn_items", "identity_states"]


class Draws(NamedTuple):
    """Repeated draws of a block of queries.

    Attributes
    ----------
    state
        Random state of each repeat, shape (n_query, n_draws), uint64; see `draw_states`.
    place
        The drawn positive, numbered within the query from near to far, shape (n_query, n_draws), int64.
    before
        Drawn items of other identities that come before it, shape (n_query, n_draws), int32; added to, never beyond
        the most that is asked for.
    """

    state: NDArray[np.uint64]
    place: NDArray[np.int64]
    before: NDArray[np.int32]


@kernel
def _mix(state: np.uint64) -> np.uint64:
    """Finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a permutation of 64-bit numbers."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@kernel
def draw_states(seed: np.uint64, query_row: NDArray[np.int64], n_draws: int) -> NDArray[np.uint64]:
    """Random states by query and repeat, shape (n_query, n_draws), uint64: a function of seed, repeat and query row."""
    step = np.uint64(0x9E3779B97F4A7C15)
    states = np.empty((len(query_row), n_draws), np.uint64)
    for q in range(len(query_row)):
        for t in range(n_draws):
            repeat = _mix(_mix(seed + step) + step * np.uint64(t + 1))
            states[q, t] = _mix(repeat + step * np.uint64(query_row[q] + 1))
    return states


@kernel
def identity_states(pid: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Random state of each pid, taken as an unsigned number, shape of `pid`, uint64."""
    states = np.empty(len(pid), np.uint64)
    for i in range(len(pid)):
        states[i] = _mix(pid[i] + np.uint64(0xD1B54A32D192ED03))
    return states


@kernel
def _drawn(state: np.uint64, identity_state: np.uint64, n: int) -> np.int64:
    """Which of ``n`` items is drawn: both states, mixed and scaled to 0 … n - 1.

    The chance of an item is off by less than ``n 2^-32`` of itself.
    """
    mixed = _mix(state ^ identity_state)
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel
def drawn_items(
    state: NDArray[np.uint64], identity_state: NDArray[np.uint64], n: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Which of its ``n`` own items each query draws in each repeat, shape of `state`, int64; 0 where it has none."""
    numbers = np.empty(state.shape, np.int64)
    for q in range(state.shape[0]):
        for t in range(state.shape[1]):
            numbers[q, t] = _drawn(state[q, t], identity_state[q], n[q])
    return numbers


@kernel
def draw_tile(
    tile: ScreenedTile,
    query_start: int,
    identity_of: NDArray[np.int32],
    item_of: NDArray[np.int32],
    identity_state: NDArray[np.uint64],
    table: ItemTable,
    most: int,
    draws: Draws,
    limit: int,
) -> int:
    """Count the drawn items of a tile that come before the drawn positives.

    Parameters
    ----------
    tile, query_start, limit
        As in `list_tile`.
    identity_of, item_of
        Identity of each column, and its number among the identity's items, shape (columns,), int32.
    identity_state
        Random state of each identity; see `identity_states`.
    table
        What each query may see of it.
    most
        Counts stop here.
    draws
        Added to.

    Returns
    -------
    As `list_tile`.
    """
    n_rows = tile.values.shape[0]
    n_draws = draws.state.shape[1]
    scratch = make_scratch(tile.values)
    waiting = np.empty(n_draws, np.int64)
    decided = 0
    for i in range(n_rows):
        q = query_start + i
        if tile.bands.indptr[i] == tile.bands.indptr[i + 1]:
            continue
        live = 0
        n_waiting = 0
        for t in range(n_draws):
            if draws.before[q, t] < most:
                waiting[n_waiting] = t
                n_waiting += 1
                live = max(live, draws.place[q, t] + 1)
        if live == 0:
            continue
        n, pairs = place_row(tile, i, live, scratch)
        decided += pairs
        if decided > limit:
            return i
        for c in range(n):
            column = scratch.column[c]
            if scratch.place[c] >= live:
                continue
            identity = identity_of[column]
            kept, number = kept_items(table, q, identity, item_of[column])
            for w in range(n_waiting):
                t = waiting[w]
                if (
                    scratch.place[c] <= draws.place[q, t]
                    and draws.before[q, t] < most
                    and _drawn(draws.state[q, t], identity_state[identity], kept) == number
                ):
                    draws.before[q, t] += 1
    return int(n_rows)
