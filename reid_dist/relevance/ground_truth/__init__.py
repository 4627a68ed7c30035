"""Ground truth by lists: for every query the gallery rows that are relevant, and those that are junk.

Benchmarks of landmark retrieval list the relevant rows of each query, where ReID derives them from identities.
Two kinds of lists are in use:

* ``oxford`` (Philbin et al., CVPR 2007; Paris in the same files): ``good``, ``ok`` and ``junk``.
* ``revisitop`` (Radenović et al., CVPR 2018): ``easy``, ``hard`` and ``junk``.

Both are read from Python values, from JSON, or, for the first kind, from the directory of text files in which it is
published.  The meaning of the lists for a ranking is part of the protocol; here they are only read, and refused unless
every query has its lists, every entry is a gallery row, and no row occurs in two lists of a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist.core.lazy import lazy_names

if TYPE_CHECKING:
    from reid_dist.relevance.ground_truth.ground_truth_lists import LISTS, GroundTruth, RowLists
    from reid_dist.relevance.ground_truth.ground_truth_source import read_ground_truth

__all__ = ["LISTS", "GroundTruth", "RowLists", "read_ground_truth"]

_NAMES = {
    "ground_truth_lists": ("LISTS", "GroundTruth", "RowLists"),
    # Most evaluations read none.
    "ground_truth_source": ("read_ground_truth",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
