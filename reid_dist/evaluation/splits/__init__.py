"""Repeated seeded splits: the gallery is drawn at random several times, and the mean is reported with its spread.

Some benchmarks are defined so.  VehicleID draws one image of every vehicle for the gallery and takes the others as
queries; SYSU-MM01 draws one image (or ten) of every identity under every camera; few-shot retrieval draws k of every
class.  One draw is noisy, so it is repeated, and the mean of a metric over the draws is printed beside its
sample standard deviation.

Each split is an ordinary, exact evaluation of drawn rows, which keep their order.  Rows of pid -1 are junk to every
protocol; they are no part of a draw, neither as gallery nor as queries.  pid 0 is an identity like any other.  What
else a benchmark prescribes belongs to its protocol: for SYSU-MM01, that camera 2 is hidden from queries of camera 3.
"""

from reid_dist.evaluation.draws import Draw, draw_rows, row_numbers
from reid_dist.evaluation.splits.split_runs import SplitReport, evaluate_splits

__all__ = ["Draw", "SplitReport", "draw_rows", "evaluate_splits", "row_numbers"]
