"""Operating points: what distance thresholds accept, and the probability of a match at a distance."""

from reid_dist.evaluation.operating.run import operating_points

__all__ = ["operating_points"]
