"""Parameter sweeps of a query expansion or a re-ranking: a table and a curve from one set of neighbour lists.

The costly part of an expansion, and of a re-ranking, is the search for the neighbours of all items.  Lists of k
neighbours begin with the lists of all smaller k, so the point with the longest lists is evaluated first, and the others
find them in the workspace.  Every point is an ordinary, exact evaluation: its digest is that of `evaluate` with the
same settings.
"""

from reid_dist.evaluation.sweeps.grid import MOST_POINTS, make_grid, parse_values
from reid_dist.evaluation.sweeps.sweep_runs import (
    SweepJob,
    SweepReport,
    grid_of,
    run_sweep,
    sweep_parameters,
)

__all__ = [
    "MOST_POINTS",
    "SweepJob",
    "SweepReport",
    "grid_of",
    "make_grid",
    "parse_values",
    "run_sweep",
    "sweep_parameters",
]
