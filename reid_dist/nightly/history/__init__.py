"""What a team knows of its past nights: runs of suites, their jobs, what was measured and how it was judged.

>>> from reid_dist.nightly.history import History
>>> with History.open("nightly.db", create=False, read_only=True) as history:  # doctest: +SKIP
...     history.runs(last=7)[-1].regressions
()
"""

from reid_dist.nightly.history.history import History
from reid_dist.nightly.history.pruning import Pruned
from reid_dist.nightly.history.values import Past

__all__ = ["History", "Past", "Pruned"]
