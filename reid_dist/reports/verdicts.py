"""The verdict on a difference of two means: one rule, for comparisons of two runs and for the gate of accuracy.

With ``smallest_effect`` as the smallest difference of interest:

``worse``, ``better``
    The whole interval of the difference lies on one side of zero, a sign-flip test agrees (p-value at most
    1 - level), and the difference is at least ``smallest_effect``.
``same``
    The whole interval lies within ± ``smallest_effect``: a difference of interest is excluded.
``undecided``
    Neither: the data are compatible both with no change and with a change of interest.

That no difference was found is no evidence of equality, so ``same`` is a finding of its own (two one-sided tests by
interval inclusion).  The sign-flip test is part of the rule because the bootstrap interval is too narrow where
identities are few; where they are so few that no outcome could reach the level, the verdict is ``undecided``.

Source: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 1987 (equivalence by interval inclusion).
"""

from __future__ import annotations

from typing import Final

from reid_dist.metrics.confidence import Interval

BETTER: Final = "better"
SAME: Final = "same"
WORSE: Final = "worse"
UNDECIDED: Final = "undecided"
"""The verdicts."""

SMALLEST_EFFECT: Final = 0.005
"""The smallest difference of interest unless another one is given, as a share: half a point.

Two trainings of one model differ by about as much, and papers of this field print gains of that size."""

ROUNDING: Final = 1e-9
"""Room for the rounding of a mean and of a difference of means."""

SMALLEST_P_VALUE: Final = 0.0001
"""The smallest p-value that is shown: none from a finite number of permutations is zero."""


def p_value_text(p_value: float) -> str:
    """Return a p-value in four decimals, or ``< 0.0001``; none from a finite number of permutations is zero."""
    return f"= {p_value:.4f}" if p_value >= SMALLEST_P_VALUE else f"< {SMALLEST_P_VALUE:.4f}"


def decidable(n_units: int, level: float) -> bool:
    """Whether so many independent identities (or queries) could reach a level, if all of them moved the same way."""
    return 2 * 0.5**n_units <= (1 - level) * (1 + ROUNDING)


def verdict_of(
    difference: float, interval: Interval, p_value: float, *, level: float, n_units: int, smallest_effect: float
) -> str:
    """Return the verdict on a difference candidate - baseline of means, as the module defines it.

    Differences are shares; the interval of the difference is two-sided at `level`, and so is the p-value of no change.
    """
    if not decidable(n_units, level):
        return UNDECIDED
    agrees = p_value <= (1 - level) * (1 + ROUNDING)
    return verdict_of_interval(difference, interval, smallest_effect=smallest_effect, agrees=agrees)


def verdict_of_interval(
    difference: float, interval: Interval, *, smallest_effect: float, agrees: bool = True, lower_is_better: bool = False
) -> str:
    """Return the verdict by an interval that has its level for few units, too, or where a test `agrees`."""
    if lower_is_better:
        difference, interval = -difference, Interval(-interval.high, -interval.low)
    if agrees and abs(difference) >= smallest_effect - ROUNDING:
        if interval.high < 0:
            return WORSE
        if interval.low > 0:
            return BETTER
    if -smallest_effect - ROUNDING <= interval.low and interval.high <= smallest_effect + ROUNDING:
        return SAME
    return UNDECIDED
