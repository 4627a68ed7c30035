"""A sweep over an expansion's neighbours against one plain evaluation of the same sets."""

from __future__ import annotations

import time

from reid_dist import FeatureSet, evaluate, sweep_parameters
from reid_dist.stores.synthetic import SyntheticShape, make_sets
from tests.benchmarks.measure import interleave, ratio_line

_METRICS = ["mAP", "CMC@1", "mINP"]


def expansion_sweep(scale: float, repeats: int) -> None:
    """`sweep_parameters` of aqe over k = 0 to 10, eleven evaluations, in memory; and the share of its list sweep."""
    n_gallery = max(200, int(100_000 * scale))
    shape = SyntheticShape(
        n_identity=max(1, n_gallery // 20),
        n_camera=6,
        n_query=max(2, int(1000 * scale)),
        n_gallery=n_gallery,
        n_distractor=0,
        n_junk=0,
        dim=512,
        noise=1.3,
        camera_shift=0.0,
    )
    query, gallery = (FeatureSet.from_arrays(each.features, each.pids, each.camids) for each in make_sets(shape))

    def plain() -> float:
        begin = time.perf_counter()
        evaluate(query, gallery, metrics=_METRICS, confidence=None)
        return time.perf_counter() - begin

    def expanded() -> float:
        begin = time.perf_counter()
        evaluate(query, gallery, metrics=_METRICS, confidence=None, expand="aqe(k=10)")
        return time.perf_counter() - begin

    def sweep() -> float:
        begin = time.perf_counter()
        sweep_parameters(query, gallery, expand="aqe", k="0:10", metrics=_METRICS)
        return time.perf_counter() - begin

    swept, one, once = interleave(repeats, sweep, expanded, plain)
    sizes = f"{query.n_rows} x {gallery.n_rows} x 512 in memory"
    print(ratio_line(f"{sizes}, sweep of aqe over k = 0:10 against one plain evaluation", swept, once))
    print(ratio_line(f"{sizes}, aqe(k=10) alone against one plain evaluation", one, once))
