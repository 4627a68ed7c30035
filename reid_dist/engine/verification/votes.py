"""Answers by votes: the identity of most of a query's nearest kept rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Neighbours, RankedQueries

Int64 = NDArray[np.int64]


def answers_by_votes(
    ranked: RankedQueries, negatives: Neighbours, query_pid: Int64, gallery_pid: Int64, k: int
) -> Int64:
    """Pid that most of the k nearest kept rows of every query have, shape (n_query,); -1 without any kept row.

    Of pids with equally many rows, that of the least mean distance, then the least pid.  `negatives` are the k nearest
    negatives of every query or more; with the positives that rank among the first k, they are the k nearest kept rows.
    """
    n_query = len(query_pid)
    owner = np.repeat(np.arange(n_query), ranked.n_relevant)
    near = ranked.rank <= k
    n_positive = np.bincount(owner[near], minlength=n_query)
    listed = (np.arange(negatives.index.shape[1]) < k - n_positive[:, None]) & (negatives.index >= 0)
    voter = np.concatenate([owner[near], np.nonzero(listed)[0]])
    pid = np.concatenate([query_pid[owner[near]], gallery_pid[negatives.index[listed]]])
    distance = np.concatenate([ranked.distance[near], negatives.distance[listed]])
    # One order of the additions, whatever the order of the rows.
    order = np.lexsort((distance, pid, voter))
    voter, pid, distance = voter[order], pid[order], distance[order]
    opens = np.ones(len(pid), np.bool_)
    opens[1:] = (np.diff(voter) != 0) | (np.diff(pid) != 0)
    party = np.cumsum(opens) - 1
    votes = np.bincount(party)
    mean = np.bincount(party, distance) / votes
    voter, pid = voter[opens], pid[opens]
    best = np.lexsort((pid, mean, -votes, voter))
    first = best[np.flatnonzero(np.diff(voter[best], prepend=-1))]
    answer = np.full(n_query, -1, np.int64)
    answer[voter[first]] = pid[first]
    return answer
