"""Metrics that ranks alone do not determine: single-shot matching, verification and open-set identification.

`reid_dist.engine.reductions.single_shot` and `reid_dist.engine.verification` compute them.
"""

from __future__ import annotations

from reid_dist.metrics.families import PAIRS, PROBES, SINGLE_SHOT, MetricFamily

OTHER_METRICS = (
    MetricFamily(
        "CMC_single_shot@k",
        "mean_j P(K_j <= k - 1), K_j the identities of which a random kept item comes before positive j",
        "Li et al., CVPR 2014 (CUHK03); the expectation of torchreid's and open-reid's draws",
        explanation="CMC_single_shot@k: the gallery keeps one item of every identity; a relevant item is a hit when it "
        "is among the first k of that gallery.",
        per_query_name="CMC_single_shot@k",
        needs=SINGLE_SHOT,
        headline="match",
    ),
    MetricFamily(
        "TAR@FAR=x",
        "genuine pairs strictly nearer than the (floor(x N) + 1)-th nearest of N impostors, over all pairs not junk",
        "verification, as scikit-learn's `roc_curve` at its last fpr <= x",
        explanation="TAR (true accept rate): the share of genuine pairs nearer than the threshold.",
        needs=PAIRS,
    ),
    MetricFamily(
        "EER",
        "where the ROC, drawn with straight lines between its points, has FAR = 1 - TAR",
        "verification; the equal error rate",
        explanation="EER (equal error rate): the error where FAR and FRR are equal.",
        needs=PAIRS,
        lower_is_better=True,
    ),
    MetricFamily(
        "DIR@FAR=x",
        "mated probes with a mate at rank 1, at a threshold that accepts x of the probes without mate",
        "Phillips et al., Handbook of Face Recognition, 2011 (open-set identification)",
        explanation="DIR (detection and identification rate): the share of mated queries whose nearest kept row is "
        "relevant and nearer than the threshold; its FAR is the share of non-mated queries whose nearest row is nearer "
        "than the threshold.",
        needs=PROBES,
    ),
)
