"""Evaluation of a distance matrix, called as the codes of the field call it.

Replace the import, and leave the call as it is::

    from reid_dist.compat import evaluate_rank   # for torchreid.metrics.evaluate_rank
    from reid_dist.compat import eval_func       # for utils.metrics.eval_func

Nothing is sorted, and the results are exact.  `reid_dist.evaluate_distances` gives the whole report of a matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reid_dist.evaluation.evaluate import evaluate_distances
from reid_dist.stores.kept_rows import to_numpy

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def evaluate_rank(
    distmat: ArrayLike,
    q_pids: ArrayLike,
    g_pids: ArrayLike,
    q_camids: ArrayLike,
    g_camids: ArrayLike,
    max_rank: int = 50,
    use_metric_cuhk03: bool = False,
    use_cython: bool = True,
    *,
    similarity: bool = False,
) -> tuple[NDArray[np.float64], float]:
    """Compute the CMC curve and mAP of a distance matrix, as ``torchreid.metrics.evaluate_rank`` defines them.

    Gallery rows with the pid and the camera of a query are left out, and queries without a match do not count.

    Parameters
    ----------
    distmat
        (n_query, n_gallery) float16, float32 or float64; torch tensors also work.
    q_pids, g_pids
        (n_query,) and (n_gallery,) identities.  Gallery rows of pid -1 are junk.
    q_camids, g_camids
        (n_query,) and (n_gallery,) cameras.
    max_rank
        Last rank of the CMC curve; the size of the gallery if that is smaller.
    use_metric_cuhk03
        Rank one gallery item of each identity for the CMC (single-gallery-shot, CUHK03).  The curve is the expectation
        over all choices of these items, where torchreid draws ten of them.
    use_cython
        Ignored.
    similarity
        Whether larger values are nearer.

    Returns
    -------
    cmc : numpy.ndarray
        (max_rank,) float64 shares: ``cmc[0]`` is rank-1 accuracy.
    mAP : float
        Mean average precision by the rectangle rule, a share.

    Raises
    ------
    InputError
        If shapes do not match, values are not finite, or no query has a match.

    Notes
    -----
    At equal distances, the lower gallery row is nearer.  In code that sorts, the order depends on the sort.
    """
    values = np.asarray(to_numpy(distmat))
    report = evaluate_distances(
        values,
        (q_pids, q_camids),
        (g_pids, g_camids),
        similarity=similarity,
        protocol="cuhk03" if use_metric_cuhk03 else "market1501",
        max_rank=min(max_rank, values.shape[-1]) if values.ndim else max_rank,
        metrics=["mAP"],
    )
    curve = report.curves["CMC_single_shot" if use_metric_cuhk03 else "CMC"]
    return curve, float(report.metrics["mAP"])


def eval_func(
    distmat: ArrayLike,
    q_pids: ArrayLike,
    g_pids: ArrayLike,
    q_camids: ArrayLike,
    g_camids: ArrayLike,
    max_rank: int = 50,
    *,
    similarity: bool = False,
) -> tuple[NDArray[np.float64], float]:
    """Compute the CMC curve and mAP of a distance matrix, as ``eval_func`` of reid-strong-baseline and TransReID does.

    Parameters, results and errors are those of `evaluate_rank`.
    """
    return evaluate_rank(distmat, q_pids, g_pids, q_camids, g_camids, max_rank, similarity=similarity)
