"""Gates: what of a night is better, the same or worse than before, and whether that is more than noise.

Four gates look at an entry, each with a verdict of its own (``better``, ``same``, ``worse``, ``undecided``,
``incomparable``) and one sentence that says why.  All are pure functions of values: they read no file, no clock and no
history.

*Accuracy*, `gate_accuracy`.  Equal inputs and an equal job must give an equal digest; another one is an alarm of its
own kind, whatever the figures say.  Otherwise the entry is compared, query by query and by identity, with

- the last good run of the same job, by the rule of :mod:`reid_dist.reports.verdicts`;
- the reference: the last accepted run, or the first run of the job where none was accepted, by the same rule;
- the best of the last 30 good nights, by a test that takes the choice of the best one into account, see
  :mod:`reid_dist.nightly.gating.best`.

All are one-sided.  They share `false_alarm`: one half, one quarter and one quarter; the first two are divided by the
number of gated metrics (Bonferroni).  A loss against any of them is a loss of the entry.  The other verdicts are those
against the last good run.

*Trend*, `gate_trend`.  A line through the last 14 nights, see :mod:`reid_dist.nightly.gating.trend`.

Which runs become baselines.  A run is *good*, and the next night's baseline, if it was done and neither its accuracy
nor its trend is ``worse``, or it was accepted.  ``same`` and ``undecided`` runs are good: the last good run serves to
find what changed since last night.  So it moves with every night, and a slide of small steps would move it along.  The
reference does not: it moves when a run is accepted and at no other time.  A gain that is to be held beyond 30 nights
has to be accepted too.  The best of the last nights and the trend look back to the accepted run and no farther.

*Speed* and *memory*, `gate_speed` and `gate_memory`.  The entry is divided by the median of the last runs of the same
job, over inputs of the same shape, on the same machine.  The ratio beyond which it is ``worse`` is the smallest ratio
that matters, or what the noise of those runs reaches by itself if that is more; see
:mod:`reid_dist.nightly.gating.noise`.

A gate that cannot tell yet, for runs are few or their noise allows every value that occurs, says how many it needs.

What the gates do not see: a slide whose sum stays below `minimum_effect` or below the noise of two nights, and changes
that move a whole night in the same way for every identity are taken for real.

The defaults are such that all gates together call a job that did not change worse in less than one night in a hundred,
also where one night in ten is slow by 30 %.  A job that takes twice the time is found after 20 runs nearly always at a
noise of up to 10 % and three times in four at 15 %; after 7 runs nearly always at 2 %, and seldom above that.  ``python
-m tests.benchmarks nights`` measures the rates of all gates together and how soon losses are seen, ``python -m
tests.benchmarks gates`` those of each gate.
"""

from reid_dist.nightly.gating.accuracy import Earlier, dropped, gate_accuracy, gated_metrics
from reid_dist.nightly.gating.nights import Night, night_of, tested_metrics
from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.gating.settings import AccuracyGate, Gates, RatioGate, SpeedGate, TrendGate
from reid_dist.nightly.gating.trend import gate_trend

__all__ = [
    "AccuracyGate",
    "Earlier",
    "Gates",
    "Night",
    "RatioGate",
    "SpeedGate",
    "TrendGate",
    "dropped",
    "gate_accuracy",
    "gate_memory",
    "gate_speed",
    "gate_trend",
    "gated_metrics",
    "night_of",
    "tested_metrics",
]
