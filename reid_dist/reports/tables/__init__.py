"""Tables of many runs: values with intervals, the best of every column, letters of significance, conventions.

Only runs of one protocol over the same queries and gallery are compared with each other; a table has one group of rows
for each.
"""

from reid_dist.reports.tables.run_table import SCHEMA, Cell, Group, Row, RunTable, ShownRuns, distinct_names
from reid_dist.reports.tables.table_of_runs import ComparedRuns, comparable, compare_runs, run_names

__all__ = [
    "SCHEMA",
    "Cell",
    "ComparedRuns",
    "Group",
    "Row",
    "RunTable",
    "ShownRuns",
    "comparable",
    "compare_runs",
    "distinct_names",
    "run_names",
]
