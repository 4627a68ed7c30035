"""Charts as inline SVG that takes its colours from the page.

Written by hand rather than drawn by a plotting library: a chart here is some twenty elements whose colours are
CSS classes, so that one picture is right on a light and on a dark screen, its labels are text in the font of the
page, a value shows up under the pointer without any script, and the bytes depend on nothing but the numbers.
Colour is never the only sign: lines carry their values, cells their numbers.
"""

from reid_dist.reports.plots.bars import histogram
from reid_dist.reports.plots.distractors import distractor_plot, distractor_scale
from reid_dist.reports.plots.heat import heat_map, heat_map_is_wide
from reid_dist.reports.plots.ranks import cmc_axis_start, cmc_plot, precision_recall_plot
from reid_dist.reports.plots.verification import det_plot, roc_plot

__all__ = [
    "cmc_axis_start",
    "cmc_plot",
    "det_plot",
    "distractor_plot",
    "distractor_scale",
    "heat_map",
    "heat_map_is_wide",
    "histogram",
    "precision_recall_plot",
    "roc_plot",
]
