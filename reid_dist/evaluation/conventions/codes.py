"""Published evaluation code by the conventions that it follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from reid_dist.metrics.definitions import Metric

_EITHER: Final = ("cosine", "euclidean")
_CAMERAS: Final = ("market1501",)
# As above, given a gallery with rows of pid -1, for which these have no rule: their readers of data sets drop them.
_WITHOUT_RULE: Final = ("market1501", "market1501, pid -1 kept")


@dataclass(frozen=True, slots=True)
class Code:
    """Evaluation code: settings by name, metrics by their name before the parameter, and distances.

    `remark` says what the table cannot: options, versions.
    """

    name: str
    source: str
    settings: tuple[str, ...]
    metrics: tuple[str, ...]
    distances: tuple[str, ...] = _EITHER
    remark: str = ""


CODES: Final = (
    Code("torchreid", "KaiyangZhou/deep-person-reid torchreid/metrics/rank.py", _WITHOUT_RULE, ("mAP", "CMC")),
    Code("fast-reid", "JDAI-CV/fast-reid fastreid/evaluation/rank.py", _WITHOUT_RULE, ("mAP", "mINP", "CMC")),
    Code(
        "reid-strong-baseline",
        "michuanhaohao/reid-strong-baseline utils/reid_metric.py, data/datasets/eval_reid.py",
        _WITHOUT_RULE,
        ("mAP", "CMC"),
        ("cosine",),
        "Euclidean on unit rows",
    ),
    Code(
        "ReID-Survey (AGW)",
        "mangye16/ReID-Survey utils/reid_metric.py, data/datasets/eval_reid.py",
        _WITHOUT_RULE,
        ("mAP", "mINP", "CMC"),
        ("cosine",),
        "Euclidean on unit rows",
    ),
    Code(
        "open-reid",
        "Cysu/open-reid reid/evaluation_metrics/ranking.py",
        _WITHOUT_RULE,
        ("mAP", "CMC", "CMC_allshots"),
        ("euclidean",),
        "CMC with first_match_break, CMC_allshots without; average precision by scikit-learn",
    ),
    Code(
        "cluster-contrast",
        "alibaba/cluster-contrast-reid clustercontrast/evaluators.py",
        _WITHOUT_RULE,
        ("mAP", "CMC"),
        ("euclidean",),
    ),
    Code(
        "Market-1501 MATLAB",
        "zhunzhong07/person-re-ranking evaluation/utils/evaluation.m, compute_AP.m",
        ("market1501_matlab",),
        ("mAP_trapezoid", "CMC"),
    ),
    Code(
        "layumi's baseline",
        "layumi/Person_reID_baseline_pytorch evaluate_gpu.py",
        ("market1501_matlab",),
        ("mAP_trapezoid", "CMC"),
        ("cosine",),
    ),
    Code(
        "pytorch-metric-learning",
        "KevinMusgrave/pytorch-metric-learning src/pytorch_metric_learning/utils/accuracy_calculator.py",
        ("same_set", "no_cameras"),
        ("mAP_R", "Rprec", "CMC", "mAP_found"),
        ("euclidean",),
        "mean_average_precision with k counts the positives found; same_set where the sets are one",
    ),
    Code(
        "Google Landmarks v2",
        "tensorflow/models research/delf/delf/python/datasets/google_landmarks_dataset/metrics.py",
        ("no_cameras",),
        ("mAP_min",),
    ),
    Code(
        "torchmetrics",
        "Lightning-AI/torchmetrics src/torchmetrics/functional/retrieval/average_precision.py, retrieval/base.py",
        ("no_cameras, invalid at 0",),
        ("mAP", "mAP_found"),
        _EITHER,
        "empty_target_action neg, its default; mAP_found@k with top_k",
    ),
)


def codes_of(setting: str, metric: Metric, distance: str) -> Iterator[Code]:
    """Code that computes a metric of a setting under a distance."""
    for code in CODES:
        if setting in code.settings and metric.family.stem in code.metrics and distance in code.distances:
            yield code
