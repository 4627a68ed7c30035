"""Expansion as tests run it: arrays in, arrays out, and tasks counted stage by stage."""

from __future__ import annotations

import numpy as np

from reid_dist import FeatureSet
from reid_dist.engine.task_graph import Progress
from reid_dist.stages.expansion.expansion_steps import parse_expand
from reid_dist.stages.expansion.neighbour_averages import expand_sets
from reid_dist.stages.session import Session
from reid_dist.stores import Workspace

# What float32 features leave of a float64 average, and the order of a sum.
CLOSE = 3e-7


def bare(features, item_ids=None):
    """A feature set without labels of use."""
    features = np.asarray(features)
    return FeatureSet.from_arrays(features, np.zeros(len(features), np.int64), item_ids=item_ids, allow_zero=True)


def labelled(items, features=None):
    """The public form of an oracle's `ItemSet`, with other features if they are given."""
    return FeatureSet.from_arrays(
        items.features if features is None else features,
        items.pids,
        camids=items.camids,
        item_ids=items.item_ids,
        allow_zero=True,
    )


def expanded(query, gallery, spec, workspace, *, chunk_rows=None, client=None, progress=None):
    """The two sets after an expansion."""
    session = Session(client=client, workspace=Workspace.at(workspace), chunk_rows=chunk_rows)
    return expand_sets(query, gallery, parse_expand(spec), session.showing(progress or Progress()).resources())


def features_of(features):
    """All rows."""
    return features.read(0, features.n_rows)


def expanded_arrays(query, gallery, spec, workspace, **options):
    """Features of the two sides after an expansion of two arrays."""
    return tuple(map(features_of, expanded(bare(query), bare(gallery), spec, workspace, **options)))


def assert_close(found, expected):
    """Each row to float32 precision of its own length."""
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    size = np.maximum(np.abs(expected).max(axis=1, keepdims=True), 1e-30)
    np.testing.assert_allclose(found / size, expected / size, rtol=0, atol=CLOSE)


__all__ = ["CLOSE", "assert_close", "bare", "expanded", "expanded_arrays", "features_of", "labelled"]
