"""History of nightly runs: suites, jobs, results and findings of the gates.

>>> from reid_dist.nightly.history import History
>>> with History.open("nightly.db", create=False, read_only=True) as history:  # doctest: +SKIP
...     history.runs(last=7)[-1].exit_code
0
"""

from reid_dist.nightly.history.history_file import History, Pruned
from reid_dist.nightly.history.history_values import Past

__all__ = ["History", "Past", "Pruned"]
