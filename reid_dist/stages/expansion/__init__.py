"""Query expansion and database-side augmentation: features replaced by weighted averages with their neighbours."""

from reid_dist.stages.expansion.definition import (
    EXPANSIONS,
    Expansion,
    describe_expansion,
    make_step,
    parse_expand,
    spelled,
)
from reid_dist.stages.expansion.lengths import refuse_unlike_lengths
from reid_dist.stages.expansion.stage import expand_sets

__all__ = [
    "EXPANSIONS",
    "Expansion",
    "describe_expansion",
    "expand_sets",
    "make_step",
    "parse_expand",
    "refuse_unlike_lengths",
    "spelled",
]
