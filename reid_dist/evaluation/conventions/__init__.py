"""The same features under every convention that could be meant: one table, from one pass over the tiles per distance.

A *setting* says which items are relevant, which are junk, and what a query without relevant items is worth; it is a
protocol, registered or composed.  All settings are ranked from one pass (`reid_dist.engine.outputs.protocol_ranks`),
and a *row* of the table is one metric of one setting under one distance, with the bits of a run of its own.
"""

from reid_dist.evaluation.conventions.convention_passes import conventions
from reid_dist.evaluation.conventions.convention_table import Candidate, Conventions, Row, Target, parse_targets

__all__ = ["Candidate", "Conventions", "Row", "Target", "conventions", "parse_targets"]
