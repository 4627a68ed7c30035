"""Noise of a quantity from night to night, estimated from few nights with outliers.

Times and memory are positive and vary in proportion, hence their logarithms.  Let ``x`` be those of ``n``
earlier runs, ``m`` their median and ``s`` their spread.  A new run leaves the noise where its logarithm is farther
from ``m`` than ::

    t(1 - false_alarm, v) * s * sqrt(1 + pi / (2 n))

``s`` is Qn, a quantile of the distances between pairs of runs.  Like the median it stays sensible until half of the
runs are odd, and it takes less than half as many runs as the median absolute deviation for the same certainty.  The
root adds the uncertainty of ``m`` (variance of a median: ``pi s**2 / 2 n``) to that of the new run.  Student's ``t``
models the uncertainty of ``s``, which is large when runs are few; ``v`` are its degrees of freedom, with the
variance of ``s`` in samples of ``n`` for what ``1 / 2 v`` is to a standard deviation.  For Qn that is about
``0.82 n - 3.5`` (0.82 is its efficiency for large ``n``, the rest was found by simulation), rounded down.

Source: Rousseeuw and Croux, JASA 1993 (Qn), with the factors for few values of Croux and Rousseeuw, COMPSTAT 1992.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.metrics.repeats import t_quantile

Float64 = NDArray[np.float64]

# Makes Qn the standard deviation of normal values: 1 / (sqrt(2) quantile(5 / 8)).
_CONSISTENT: Final = 2.21914
_OF_FEW: Final = {2: 0.399, 3: 0.994, 4: 0.512, 5: 0.844, 6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}


def noise_floor(logs: Float64, false_alarm: float, *, n_runs: int | None = None) -> float:
    """Return the distance from the median that a new logarithm exceeds with probability `false_alarm` on either side.

    `logs` are those of earlier runs, shape (n,), n at least 2; `false_alarm` is at most 0.5; `n_runs` replaces n for
    the uncertainty of the spread.
    """
    n = len(logs) if n_runs is None else n_runs
    wider = math.sqrt(1 + math.pi / (2 * n))
    return t_quantile(1 - false_alarm, degrees_of_freedom(n)) * spread(logs) * wider


def spread(values: Float64) -> float:
    """Qn of values of shape (n,), n at least 2: for normal values their standard deviation."""
    n = len(values)
    first, second = np.triu_indices(n, 1)
    distances = np.abs(values[first] - values[second])
    half = n // 2 + 1
    order = half * (half - 1) // 2
    factor = _OF_FEW.get(n) or (n / (n + 1.4) if n % 2 else n / (n + 3.8))
    return factor * _CONSISTENT * float(np.partition(distances, order - 1)[order - 1])


def degrees_of_freedom(n: int) -> int:
    """Degrees of freedom of the t distribution that models the uncertainty of Qn of `n` values."""
    return max(1, math.floor(0.82 * n - 3.5))
