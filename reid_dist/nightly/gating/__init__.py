"""Gates: which results of a night are better or worse than before, beyond noise.

Each of four gates gives an entry a verdict (``better``, ``same``, ``worse``, ``undecided``, ``incomparable``) with a
code and the figures, which :mod:`reid_dist.nightly.wording` words.  All are pure functions of values: they read no
file, no clock and no history.

*Accuracy*, `gate_accuracy`.  Equal inputs and an equal job must give an equal digest; another digest is an alarm of its
own.  Otherwise the entry is compared, query by query and by identity, with

- the last good run of the same job, by the rule of :mod:`reid_dist.reports.verdicts`;
- the reference: the last accepted run, or the first run of the job where none was accepted, by the same rule.

Both are one-sided, and have half of `false_alarm` each, divided by the number of gated metrics (Bonferroni).  A loss
against either is a loss of the entry.  The other verdicts are those against the last good run.  (A test against the
best of the last nights saw a slide of 4.2 points in 14 nights no earlier than these and the trend.)

*Trend*, `gate_trend`.  A line through the last 14 nights, see :mod:`reid_dist.nightly.gating.trend`.

Which runs become baselines.  A run is *good*, and the next night's baseline, if it was done and neither its accuracy
nor its trend is ``worse``, or it was accepted.  ``same`` and ``undecided`` runs are good, so the last good run
follows a slide of small steps.  The reference does not: it changes only when a run is accepted.  A gain that is to be
kept as a baseline has to be accepted too.  The trend reaches back to the accepted run at most.

*Speed* and *memory*, `gate_speed` and `gate_memory`.  The entry is divided by the median of the last comparable runs,
see :mod:`reid_dist.nightly.gating.ratios`.

An entry whose gallery or queries are other ones than those of the last good run is compared with it on the items that
both have, see :mod:`reid_dist.nightly.common_items`, and in the first night of these rows with the reference of other
rows.  The trend begins anew with them.

An entry whose accuracy is ``incomparable`` although it has a baseline (another job, no common items, a missing or
damaged report) is *uncompared*: nothing tests it, so that a night with one does not end as a good one.  The next night
is compared with it all the same.

A gate without enough runs, or with runs whose noise allows every value that occurs, gives the number that it needs.

Limits: a slide whose sum stays below `minimum_effect` or below the noise of two nights is not detected, and a change
that moves a whole night alike for every identity counts as real.

``python -m tests.benchmarks nights`` measures the rates of all gates together and how soon losses are seen, ``python -m
tests.benchmarks gates`` those of each gate.  All gates together call a job that did not change worse in less than one
night in a hundred, also where one night in ten is slow by 30%.
"""
