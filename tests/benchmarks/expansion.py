"""A sweep over an expansion's neighbours against one plain evaluation of the same sets."""

from __future__ import annotations

from reid_dist import evaluate, sweep_parameters
from tests.benchmarks.measure import interleave, ratio_line, seconds_of
from tests.benchmarks.sets import feature_sets, make_shape

_METRICS = ["mAP", "CMC@1", "mINP"]


def expansion_sweep(scale: float, repeats: int) -> None:
    """`sweep_parameters` of aqe over k = 0 to 10, eleven evaluations, in memory; and the share of its list sweep."""
    query, gallery = feature_sets(make_shape(1000 * scale, max(200, 100_000 * scale)))

    def plain() -> float:
        return seconds_of(lambda: evaluate(query, gallery, metrics=_METRICS, confidence=None))

    def expanded() -> float:
        return seconds_of(lambda: evaluate(query, gallery, metrics=_METRICS, confidence=None, expand="aqe(k=10)"))

    def sweep() -> float:
        return seconds_of(lambda: sweep_parameters(query, gallery, expand="aqe", k="0:10", metrics=_METRICS))

    swept, one, once = interleave(repeats, sweep, expanded, plain)
    sizes = f"{query.n_rows} x {gallery.n_rows} x 512 in memory"
    print(ratio_line(f"{sizes}, sweep of aqe over k = 0:10 against one plain evaluation", swept, once))
    print(ratio_line(f"{sizes}, aqe(k=10) alone against one plain evaluation", one, once))
