"""An epoch of validation with `reid_dist.torch.ReIDMetric`, against the bare product of its queries and gallery."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from reid_dist.stores.synthetic import SyntheticSet, make_sets
from reid_dist.torch import ReIDMetric
from tests.benchmarks.measure import bare_product, interleave, ratio_line, seconds_of
from tests.benchmarks.sets import RANDOM, TYPICAL, make_shape, score

_BATCH = 256


def epochs(scale: float, repeats: int) -> None:
    """Epochs after the first of a good model and of a random one, on sets of the size of Market-1501."""
    try:
        from torch import from_numpy
    except ImportError:
        print("without tensors, since torch is not installed: features are arrays")
        from_numpy = np.asarray  # what a metric takes as well
    for model in (TYPICAL, RANDOM):
        query, gallery = make_sets(make_shape(3368 * scale, 19_732 * scale, model))
        batches = [*_batches(query, from_numpy, is_query=True), *_batches(gallery, from_numpy, is_query=False)]
        metric = ReIDMetric()

        def epoch(metric: ReIDMetric = metric, batches: list[dict[str, Any]] = batches) -> None:
            metric.reset()
            for batch in batches:
                metric.update(**batch)
            metric.compute()

        epoch()
        assert metric.report is not None
        size = " x ".join(map(str, (len(query.pids), *gallery.features.shape)))
        product = partial(bare_product, query.features, gallery.features)
        taken = interleave(repeats, partial(seconds_of, epoch), product)
        print(ratio_line(f"{size}, an epoch, {score(metric.report)}", *taken))


def _batches(rows: SyntheticSet, from_numpy: Any, *, is_query: bool) -> list[dict[str, Any]]:
    """Batches of a sampler: features, labels and the indices of the items."""
    starts = range(0, len(rows.pids), _BATCH)
    first = 0 if is_query else 10**6
    return [
        {
            "features": from_numpy(rows.features[start : start + _BATCH]),
            "pids": from_numpy(rows.pids[start : start + _BATCH]),
            "camids": from_numpy(rows.camids[start : start + _BATCH]),
            "is_query": is_query,
            "item_ids": from_numpy(np.arange(start, min(start + _BATCH, len(rows.pids))) + first),
        }
        for start in starts
    ]
