"""`reid_dist.evaluate`: one evaluation, or that of a benchmark by name."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Unpack

from reid_dist.errors import InputError
from reid_dist.evaluation.evaluate import evaluate_once
from reid_dist.evaluation.options import EvaluationOptions
from reid_dist.evaluation.sessions import Shown, begin_session, lists_options
from reid_dist.reports import Report
from reid_dist.stores import FeatureSource

if TYPE_CHECKING:
    from distributed import Client


@lists_options()
def evaluate(
    query: FeatureSource,
    gallery: FeatureSource | None = None,
    *,
    benchmark: str | None = None,
    other_codes: bool = False,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
    **options: Unpack[EvaluationOptions],
) -> Report:
    """Evaluate queries against a gallery, exactly.

    Parameters
    ----------
    query, gallery
        The two sets, of equal dimension: feature sets, tuples ``(features, pids, camids)`` of arrays as in
        `FeatureSet.from_arrays`, or paths of stores or of files that `ingest` reads.  Without a gallery, `query` is the
        path of a file or directory that holds both.
    benchmark
        A name from `reid-dist list benchmarks`: its protocol, collapse, draws and metrics.  Options that contradict it
        are refused; distance, expand, rerank, metrics and all others remain free.  Benchmarks that draw galleries, such
        as SYSU-MM01, are refused; call `reid_dist.evaluate_splits`.
    other_codes
        Also give the numbers of other published implementations that rank groups or draw galleries; each takes a
        separate run.  Numbers of implementations that rank single items come from the same pass and are always given.
    **options
        As listed in `reid_dist.evaluation.options.EvaluationOptions`.
    client
        Cluster to run on; None for threads of this process.  Results do not depend on it.
    workspace
        Directory visible to every worker, or an ``s3://`` URI.  It holds sets in memory for the workers, results of
        expansion and re-ranking for reuse, and partial results.  Interrupted runs resume from here.  None uses a
        temporary directory.
    progress
        True for bars in the terminal or the notebook, None or False for none, or a
        `reid_dist.engine.task_graph.Progress` with methods for stages and finished tasks.

    Returns
    -------
    Report
        The report; `Report.save` writes it.

    Raises
    ------
    UnknownNameError
        For a benchmark, protocol, distance, metric or breakdown that does not exist.
    InputError
        For sets that cannot be evaluated with these options; the message says why and what to do.
    PlanError
        If the job cannot fit, before any work is done.
    ClusterError
        If a worker has a different version of this package, or no worker starts.
    RunFailedError
        If the cluster lost the job, or if no worker was able to work for five minutes (Dask's setting
        ``distributed.scheduler.no-workers-timeout``).
    """
    if gallery is None:
        if not isinstance(query, str | PathLike):
            raise InputError("there is no gallery; give one, or the path of a file or directory with both sets")
        gallery = query
    with begin_session(client, workspace, progress) as session:
        if benchmark is None and not other_codes:
            return evaluate_once(session, query, gallery, **options)
        # Few runs need benchmarks and their splits.
        from reid_dist.evaluation.benchmarked import evaluate_benchmark

        return evaluate_benchmark(session, query, gallery, benchmark, options, other_codes=other_codes)
