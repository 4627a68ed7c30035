"""Features replaced before an evaluation: averages with neighbours, and normalisation by camera."""

from reid_dist.stages.expansion.definition import (
    EXPANSIONS,
    Expansion,
    Step,
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
    "Step",
    "describe_expansion",
    "expand_sets",
    "make_step",
    "parse_expand",
    "refuse_unlike_lengths",
    "spelled",
]
