"""Outputs of a job, one class each: ranks, lists, curves and counts that are computed from one pass over the tiles."""
