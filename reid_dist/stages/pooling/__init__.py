"""Pooling: one row per group of rows that share a label, for video benchmarks and multi-query evaluation.

A tracklet of MARS is one item whose feature is the mean (or the element-wise maximum) of the features of its frames,
scaled to length 1.  The multi-query setting of Market-1501 does the same with all images of an identity under one
camera, on the query side.  Here pooling is a stage before the evaluation: it reads a feature set and writes another.

Groups and their sizes follow from labels, before any feature is read.  Groups are numbered in the order of their first
rows and cut into blocks whose float64 accumulators fit a fixed number of bytes; for each block, a task reads the pieces
of the set that hold its rows once, in row order, and writes a part of the workspace.  A set with contiguous groups is
cut into short blocks, which many threads share, and is read about once; one with scattered groups is read once per
block, is cut into as few blocks as the accumulators allow, and is never held in memory as a whole.

Every group is summed in float64 by one addition per row, in row order, and squared lengths are folded in a fixed tree
of elementwise additions: the result is a function of rows, labels and options, and has the same bytes whatever the
chunks of the source, the size of the blocks and the machine.
"""

from reid_dist.stages.pooling.pooling_job import POOLINGS, PooledPlace, Pooling, PoolJob, write_pooled
from reid_dist.stages.pooling.row_groups import CamidRule, RowGroups, group_rows

__all__ = ["POOLINGS", "CamidRule", "PoolJob", "PooledPlace", "Pooling", "RowGroups", "group_rows", "write_pooled"]
