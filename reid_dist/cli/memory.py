"""Memory of this process, which puts the answer together wherever its parts are computed."""

from __future__ import annotations

from reid_dist.core.formatting import byte_size
from reid_dist.engine.plan import DEFAULT_MEMORY
from reid_dist.errors import PlanError
from reid_dist.metrics.curves import curve_bytes

__all__ = ["refuse_long_curves"]


def refuse_long_curves(n_query: int, max_rank: int) -> None:
    """Refuse curves over more ranks than there is memory for, before any work.

    Parameters
    ----------
    n_query
        Queries of the job.
    max_rank
        Length of the curves.

    Raises
    ------
    PlanError
        If they do not fit.
    """
    needed = curve_bytes(n_query, max_rank)
    if needed <= DEFAULT_MEMORY:
        return
    # Dask knows of limits that the system's own numbers leave out; it takes long to import.
    from distributed.system import memory_limit

    there = memory_limit()
    if needed > there:
        raise PlanError(
            f"curves over {max_rank:,} ranks of {n_query:,} queries take {byte_size(needed)} in this process, and "
            f"it may take {byte_size(there)}: choose a smaller --max-rank, or max_rank of the pipeline"
        )
