"""Published evaluation code by the conventions that it follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reid_dist.metrics.definitions import Metric

_EITHER: Final = ("cosine", "euclidean")
# The second given a gallery with rows of pid -1, for which these have no rule: their readers of data sets drop them.
_WITHOUT_RULE: Final = ("market1501", "market1501, pid -1 kept")


@dataclass(frozen=True, slots=True)
class Code:
    """Evaluation code: names of settings, of families of metrics, and of distances.

    `remark` says what the table cannot: options, versions.
    """

    name: str
    source: str
    settings: tuple[str, ...]
    metrics: tuple[str, ...]
    distances: tuple[str, ...] = _EITHER
    remark: str = ""


CODES: Final = (
    Code(
        "torchreid and fast-reid eval_cuhk03",
        "KaiyangZhou/deep-person-reid torchreid/metrics/rank.py, JDAI-CV/fast-reid fastreid/evaluation/rank.py",
        ("cuhk03",),
        ("mAP", "CMC_single_shot@k"),
        remark="eval_cuhk03, by ten draws: their expectation here",
    ),
    Code(
        "open-reid with separate_camera_set",
        "Cysu/open-reid reid/evaluation_metrics/ranking.py",
        ("cuhk03_separate_cameras",),
        ("CMC_single_shot@k",),
        ("euclidean",),
        "cmc with separate_camera_set and single_gallery_shot, by ten draws: their expectation here",
    ),
    Code("torchreid", "KaiyangZhou/deep-person-reid torchreid/metrics/rank.py", _WITHOUT_RULE, ("mAP", "CMC@k")),
    Code("fast-reid", "JDAI-CV/fast-reid fastreid/evaluation/rank.py", _WITHOUT_RULE, ("mAP", "mINP", "CMC@k")),
    Code(
        "reid-strong-baseline",
        "michuanhaohao/reid-strong-baseline utils/reid_metric.py, data/datasets/eval_reid.py",
        _WITHOUT_RULE,
        ("mAP", "CMC@k"),
        ("cosine",),
        "Euclidean on unit rows",
    ),
    Code(
        "ReID-Survey (AGW)",
        "mangye16/ReID-Survey utils/reid_metric.py, data/datasets/eval_reid.py",
        _WITHOUT_RULE,
        ("mAP", "mINP", "CMC@k"),
        ("cosine",),
        "Euclidean on unit rows",
    ),
    Code(
        "open-reid",
        "Cysu/open-reid reid/evaluation_metrics/ranking.py",
        _WITHOUT_RULE,
        ("mAP", "CMC@k", "CMC_allshots@k"),
        ("euclidean",),
        "CMC with first_match_break, CMC_allshots without; average precision by scikit-learn",
    ),
    Code(
        "cluster-contrast",
        "alibaba/cluster-contrast-reid clustercontrast/evaluators.py",
        _WITHOUT_RULE,
        ("mAP", "CMC@k"),
        ("euclidean",),
    ),
    Code(
        "Market-1501 MATLAB",
        "zhunzhong07/person-re-ranking evaluation/utils/evaluation.m, compute_AP.m",
        ("market1501_matlab",),
        ("mAP_trapezoid", "CMC@k"),
    ),
    Code(
        "layumi's baseline",
        "layumi/Person_reID_baseline_pytorch evaluate_gpu.py",
        ("market1501_matlab",),
        ("mAP_trapezoid", "CMC@k"),
        ("cosine",),
    ),
    Code(
        "pytorch-metric-learning",
        "KevinMusgrave/pytorch-metric-learning src/pytorch_metric_learning/utils/accuracy_calculator.py",
        ("same_set", "no_cameras"),
        ("mAP", "mAP@k", "mAP_R", "Rprec", "MRR", "CMC@k"),
        ("euclidean",),
        "mean_average_precision from 1.6.2 on, mAP with k=None; same_set where the sets are one",
    ),
    Code(
        "pytorch-metric-learning to 1.6.1",
        "KevinMusgrave/pytorch-metric-learning src/pytorch_metric_learning/utils/accuracy_calculator.py",
        ("same_set", "no_cameras"),
        ("mAP_found@k", "mAP_min@k", "mAP_R", "Rprec", "CMC@k"),
        ("euclidean",),
        "mean_average_precision: mAP_found@k to 1.6.0, mAP_min@k in 1.6.1; same_set where the sets are one",
    ),
    Code(
        "OML",
        "OML-Team/open-metric-learning oml/functional/metrics.py",
        ("same_set", "no_cameras"),
        ("mAP_found@k", "P_min@k", "CMC@k"),
        remark="calc_map, calc_precision; earlier versions of calc_map have the denominator of mAP_min@k",
    ),
    Code(
        "Google Landmarks v2",
        "tensorflow/models research/delf/delf/python/datasets/google_landmarks_dataset/metrics.py",
        ("no_cameras",),
        ("mAP_min@k",),
    ),
    Code(
        "torchmetrics",
        "Lightning-AI/torchmetrics src/torchmetrics/functional/retrieval/average_precision.py, retrieval/base.py",
        ("no_cameras, invalid at 0",),
        ("mAP", "mAP_found@k"),
        _EITHER,
        "empty_target_action neg, its default; mAP_found@k with top_k; scores above 0, such as 1 + cosine: from 1.7.4 "
        "on, relevant items with other scores count as not relevant",
    ),
)


def codes_of(settings: Sequence[str], metric: Metric, distances: Sequence[str]) -> Iterator[Code]:
    """Code that computes a metric of any of some settings, under any of some distances."""
    for code in CODES:
        known = metric.family.name in code.metrics
        if known and set(settings) & set(code.settings) and set(distances) & set(code.distances):
            yield code
