"""Gates: what of a night is better, the same or worse than before, and whether that is more than noise.

Three gates look at an entry, each with a verdict of its own (``better``, ``same``, ``worse``, ``incomparable``) and one
sentence that says why.  All are pure functions of values: they read no file, no clock and no history.

*Accuracy*, `judge_accuracy`.  Equal inputs and an equal job must give an equal digest; another one is an alarm of its
own kind, whatever the figures say.  Otherwise the entry is held against the last good run of the same job, query by
query; identities are resampled, as in :mod:`reid_dist.comparison`.  A metric is ``worse`` if its drop is at least
`minimum_effect`, and the bootstrap interval of the difference lies below 0, and a sign-flip test says so too: the
interval alone is too narrow where identities are few.  Both are taken one-sided at `false_alarm` divided by the number
of gated metrics (Bonferroni), so that the rate holds for the job and not for each metric.

*Speed* and *memory*, `judge_speed` and `judge_memory`.  The entry is divided by the median of the last runs of the same
job, over inputs of the same shape, on the same machine.  The ratio beyond which it is ``worse`` is the smallest ratio
that matters, or what the noise of those runs reaches by itself if that is more; see :mod:`reid_dist.gating.noise`.

What a gate does not see: a slide of many small steps, each below `minimum_effect`, each the next night's baseline.  The
trend on the page shows it.

The defaults are such that all gates together call a job that did not change worse in less than one night in a hundred,
also where one night in ten is slow by 30 %.  What they see of a change depends on the noise.  At 3,368 queries of 750
identities a real drop of one point of mAP is found nearly always where the difference of AP per query has a standard
deviation of 0.09, three times in four at 0.14, every other time at 0.19 and once in six at 0.30, which is that of two
models with nothing in common.  A job that takes twice the time is found after 20 runs nearly always at a noise of up to
10 % and three times in four at 15 %; after 7 runs nearly always at 2 %, and seldom above that.  ``python -m
tests.benchmarks gates`` measures all of it.
"""

from reid_dist.gating.accuracy import Earlier, dropped, gated_metrics, judge_accuracy
from reid_dist.gating.nights import Night, night_of, tested_metrics
from reid_dist.gating.ratios import judge_memory, judge_speed
from reid_dist.gating.settings import AccuracyGate, Gates, RatioGate, SpeedGate, TrendGate
from reid_dist.gating.trend import judge_trend

__all__ = [
    "AccuracyGate",
    "Earlier",
    "Gates",
    "Night",
    "RatioGate",
    "SpeedGate",
    "TrendGate",
    "dropped",
    "gated_metrics",
    "judge_accuracy",
    "judge_memory",
    "judge_speed",
    "judge_trend",
    "night_of",
    "tested_metrics",
]
