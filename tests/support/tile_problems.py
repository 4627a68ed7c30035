"""A block pair with reductions of every kind, and the content of what they find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reid_dist.core.model import GalleryMask, Hidden, Labels
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.counts import CountNearer
from reid_dist.engine.reductions.group_counts import CountGroups
from reid_dist.engine.reductions.identities import Identities
from reid_dist.engine.reductions.impostor_counts import CollectImpostors, CountImpostors, Visibility
from reid_dist.engine.reductions.key_counts import ScreenScale
from reid_dist.engine.reductions.single_shot_counts import ListBefore, ListedItems, SingleShot
from reid_dist.engine.reductions.surroundings import KeepNearest
from reid_dist.engine.reductions.targets import group_targets, make_targets
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.canonical import Rescoring
from reid_dist.relevance.assignment import GalleryIndex, assign_relevance
from reid_dist.relevance.groups import GroupIndex
from reid_dist.relevance.protocols import PROTOCOLS
from support.row_blocks import block_of, canonical_matrix

COSINE = DISTANCES.get("cosine")


class Problem:
    """Queries, a gallery, and reductions of different thresholds."""

    def __init__(self, seed: int, is_reranked: bool) -> None:
        rng = np.random.default_rng(seed)
        n_query, n_gallery, dim = 12, 90, int(rng.choice([3, 40]))
        centres = rng.normal(size=(6, dim))
        pids = [rng.integers(0, 6, n) for n in (n_query, n_gallery)]
        rows = [centres[pid] + rng.choice([0.1, 1.0]) * rng.normal(size=(len(pid), dim)) for pid in pids]
        rows[1][rng.integers(0, n_gallery, 30)] = rows[1][rng.integers(0, n_gallery)]
        near, self.far = block_of(rows[0]), block_of(rows[1])
        if is_reranked:
            # Known pairs are nearer than all others, as where neighbours are shared.
            shares = rng.random((n_query, n_gallery)) < rng.choice([0.05, 0.5])
            indptr, known = np.concatenate([[0], np.cumsum(shares.sum(axis=1))]), rng.integers(1, 9, shares.sum()) / 10
            near = replace(
                near, reranked=Rescoring(True, 0.3, False, np.full(n_query, 2.0), indptr, np.nonzero(shares)[1], known)
            )
        self.near, self.exact = near, canonical_matrix(near, self.far, COSINE)
        labels = [Labels(pid, rng.integers(0, 3, len(pid)), np.arange(len(pid))) for pid in pids]
        labels[1] = replace(labels[1], columns={"track": rng.integers(0, 25, n_gallery)})
        rules = PROTOCOLS.get("cuhk03")
        index = GalleryIndex(labels[1], rules)
        relevance = assign_relevance(rules, labels[0], index)
        tracks = GroupIndex(labels[1], "track", index.mask)
        members = tracks.with_members(relevance, listed=False)

        def distances(indptr, row):
            return self.exact[np.repeat(np.arange(n_query), np.diff(indptr)), row]

        targets = make_targets(relevance, distances(relevance.relevant_indptr, relevance.relevant_row))
        groups = group_targets(members, distances(*members.listed), first_alone=False)
        # The same positives at a third of their distances: thresholds among other pairs.
        nearer = replace(targets, distance=targets.distance / 3)
        scale = ScreenScale(False, 0.3, 1.0, 2.0) if is_reranked else ScreenScale(False)
        seen = Visibility(targets.hidden, index.mask, np.ones(n_query, bool), scale)
        edges = np.quantile(self.exact, [0.05, 0.1, 0.5, 0.6]).tolist()
        identities = Identities.make(pids[1], index.mask)
        none = Hidden(np.zeros(n_query + 1, np.int64), np.empty(0, np.int64), None, False)
        self.reductions = {
            "counts": CountNearer(targets, index.mask),
            "nearer": CountNearer(nearer, index.mask),
            "groups": CountGroups(groups, index.mask, tracks.groups),
            "single-shot": ListBefore(targets, index.mask, identities, SingleShot(5)),
            "single-shot of nearer": ListBefore(nearer, index.mask, identities, SingleShot(5)),
            "lists": KeepNearest(4, none, GalleryMask(np.arange(n_gallery) % 7 == 0, None)),
            "impostors": CollectImpostors(seen, tuple(edges), 1000),
            "impostors by query": CollectImpostors(seen, tuple(edges), 1000, by_query=True),
            "histogram": CountImpostors(seen),
        }  # fmt: skip

    def run(self, names, tile):
        found = run_tiles(
            self.near, self.far, COSINE, tile, [self.reductions[name] for name in names], policy=Policy.in_force()
        )
        return dict(zip(names, found, strict=True))


def content(found):
    """Everything in a partial result, as nested lists; entries of single-shot lists are in no order."""
    if isinstance(found, ListedItems):
        found = replace(found, entry=np.sort(found.entry))
    if isinstance(found, np.ndarray):
        # No number is unequal to itself.
        return np.where(found == found, found, None).tolist()
    if isinstance(found, dict):
        return {key: content(value) for key, value in found.items()}
    if isinstance(found, tuple | list):
        return [content(each) for each in found]
    slots = getattr(type(found), "__slots__", None)
    return {name: content(getattr(found, name)) for name in slots} if slots else found
