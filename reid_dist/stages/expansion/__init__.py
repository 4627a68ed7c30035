"""Features replaced before an evaluation: averages with neighbours, and normalisation by camera."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist.core.lazy import lazy_names

if TYPE_CHECKING:
    from reid_dist.stages.expansion.expansion_steps import (
        EXPANSIONS,
        Expansion,
        Step,
        describe_expansion,
        make_step,
        parse_expand,
        spelled,
    )
    from reid_dist.stages.expansion.lengths import refuse_unlike_lengths
    from reid_dist.stages.expansion.neighbour_averages import expand_sets

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

_NAMES = {
    "expansion_steps": (
        "EXPANSIONS",
        "Expansion",
        "Step",
        "describe_expansion",
        "make_step",
        "parse_expand",
        "spelled",
    ),
    "lengths": ("refuse_unlike_lengths",),
    "neighbour_averages": ("expand_sets",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
