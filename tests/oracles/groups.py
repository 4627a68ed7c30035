"""Ranking by group: gallery items of one label are one entry of the list, at the nearest that is kept.

`rank_groups` forms every group and sorts; `walk_cross_modality` walks down a list of items as the evaluation code of
SYSU-MM01 and LLCM does, without forming groups.
"""

from __future__ import annotations

import math

import numpy as np
from support.reference import Ranking, rank_one_query


def rank_groups(distances, relevant, junk, labels):
    """(`Ranking` of the groups of one query, number of its groups).

    Items of the ranking are gallery rows, of each group the nearest kept one.
    """
    nearest, holds_relevant = {}, set()
    for row, (distance, label) in enumerate(zip(distances, labels, strict=True)):
        if junk[row]:
            continue
        key = (float(distance), row)
        nearest[label] = min(nearest.get(label, key), key)
        if relevant[row]:
            holds_relevant.add(label)
    heads = {row: label for label, (_, row) in nearest.items()}
    rows = range(len(distances))
    ranking: Ranking = rank_one_query(
        distances, [heads.get(row) in holds_relevant for row in rows], [row not in heads for row in rows]
    )
    return ranking, len(nearest)


def walk_cross_modality(distances, query, gallery, hidden_pairs, max_rank):
    """(CMC, mAP, mINP) by the rules of SYSU-MM01's code; `query` and `gallery` are (pids, cameras).

    Gallery items of a camera that is paired with the query's in `hidden_pairs` leave the list.  The CMC goes down the
    list of identities, each where it occurs first; AP and INP go down the list of items.  Queries whose identity is not
    in their list are left out.
    """
    curves, precisions, penalties = [], [], []
    for row, pid, camera in zip(distances, *query, strict=True):
        order = sorted(range(len(row)), key=lambda item, row=row: (row[item], item))
        pids = [gallery[0][item] for item in order if (camera, gallery[1][item]) not in hidden_pairs]
        if pid not in pids:
            continue
        once = list(dict.fromkeys(pids))
        curves.append([float(once.index(pid) < k) for k in range(1, max_rank + 1)])
        hits = np.array(pids) == pid
        places = np.flatnonzero(hits) + 1
        precisions.append(math.fsum(np.cumsum(hits)[hits] / places) / hits.sum())
        penalties.append(hits.sum() / places[-1])
    n = len(curves)
    return (
        [math.fsum(column) / n for column in zip(*curves, strict=True)],
        math.fsum(precisions) / n,
        (math.fsum(penalties) / n),
    )
