"""Verification and open-set search: thresholds over all pairs or probes, and acceptance rates under them."""

from reid_dist.engine.verification.crossings import Crossing, Level, ThresholdSearch, crossings_of
from reid_dist.engine.verification.level_brackets import LevelBrackets
from reid_dist.engine.verification.measures import (
    ROC_RATES,
    Pairs,
    Verification,
    identification_rates,
    make_verification,
    n_nearest,
    needs_pairs,
    needs_probes,
    pairs_of,
    refuse_without_unknown,
    verify_pairs,
    wanted_levels,
)

__all__ = [
    "ROC_RATES",
    "Crossing",
    "Level",
    "LevelBrackets",
    "Pairs",
    "ThresholdSearch",
    "Verification",
    "crossings_of",
    "identification_rates",
    "make_verification",
    "n_nearest",
    "needs_pairs",
    "needs_probes",
    "pairs_of",
    "refuse_without_unknown",
    "verify_pairs",
    "wanted_levels",
]
