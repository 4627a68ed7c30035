"""Tables of many runs: values with intervals, the best of every column, letters of significance, conventions.

Only runs of one protocol over the same queries and gallery are compared with each other; a table has one group of rows
for each.
"""

from reid_dist.reports.tables.table import SCHEMA, RunTable, compare_runs, run_names
from reid_dist.reports.tables.values import Cell, Group, Row

__all__ = ["SCHEMA", "Cell", "Group", "Row", "RunTable", "compare_runs", "run_names"]
