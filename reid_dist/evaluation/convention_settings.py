"""The settings that two sets allow, registered protocols and those composed of them, and the published code of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reid_dist.core.findings import Finding, info
from reid_dist.engine.checks import check_labels, joined_labels
from reid_dist.errors import InputError
from reid_dist.metrics.metric import Metric
from reid_dist.relevance.protocols import JUNK_PID, OWN_ROW, PROTOCOLS, SAME_CAMERA, ZERO, Protocol, compose_protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.repeated_items import shared_items

DISTRACTOR_PID: Final = 0


@dataclass(frozen=True)
class Setting:
    """A protocol, and what it is composed of: `parts` differ from those of the protocol `base`; none if registered."""

    protocol: Protocol
    base: str
    parts: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the protocol; of a composed one, its base and what differs."""
        return self.protocol.name

    def describe(self) -> dict[str, Any]:
        """The protocol as a pipeline file has it: a name, or a name with base and parts."""
        return {"name": self.name, **({"base": self.base, **self.parts} if self.parts else {})}

    @property
    def command(self) -> str:
        """How it is reproduced: the option, or the entry of a pipeline."""
        # JSON is YAML, too.
        return f"protocol: {json.dumps(self.describe())}" if self.parts else f"--protocol {self.name}"

    @classmethod
    def of(cls, base: str, words: str = "", **parts: Any) -> Setting:
        """Compose a protocol, or take the registered one that has these parts; `words` say what differs."""
        if (base, parts) == ("market1501", {"invalid_query": ZERO}):
            base, parts = "market1501_matlab", {}
        if not parts:
            return cls(PROTOCOLS.get(base), base, {})
        return cls(compose_protocol(f"{base}, {words}", base=base, **parts), base, parts)


def settings_for(
    query: LabelledSet, gallery: LabelledSet, *, single_shot: bool
) -> tuple[list[tuple[Setting, Setting]], list[Finding]]:
    """Settings by what is relevant and junk, each without invalid queries and with these at 0; and notes on others."""
    notes: list[Finding] = []
    found = []
    for base, own_words, own_parts in _bases(query, gallery, notes, single_shot=single_shot):
        # Those of CUHK03 differ from market1501 in the CMC and in the cameras; each takes as long as all others.
        rules = [("", {})] if PROTOCOLS.get(base).cmc_family == "CMC_single_shot" else _junk_pids(gallery, notes)
        for pid_words, pid_parts in rules:
            words = [each for each in (own_words, pid_words) if each]
            parts = {**own_parts, **pid_parts}
            found.append(
                (
                    Setting.of(base, ", ".join(words), **parts),
                    Setting.of(base, ", ".join([*words, "invalid at 0"]), **parts, invalid_query=ZERO),
                )
            )
    return found, list(dict.fromkeys(notes))


def _bases(
    query: LabelledSet, gallery: LabelledSet, notes: list[Finding], *, single_shot: bool
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Conventions of cameras and of own rows: a protocol, words for what differs, and parts."""
    unfit = _unfit_cameras(query, gallery)
    notes += unfit
    if not unfit:
        yield "market1501", "", {}
        if single_shot:
            yield "cuhk03", "", {}
            yield "cuhk03_separate_cameras", "", {}
        else:
            notes.append(info("no_single_shot"))
    yield "no_cameras", "", {}
    if not _has_own_rows(query, gallery, notes):
        return
    yield "same_set", "", {}
    if not unfit:
        yield "market1501", "own row junk", {"junk": (SAME_CAMERA, OWN_ROW)}


def _unfit_cameras(query: LabelledSet, gallery: LabelledSet) -> list[Finding]:
    """Note why cameras of the two sets cannot be compared; nothing if they can."""
    missing = [name for name, side in (("query", query), ("gallery", gallery)) if side.camids is None]
    if missing:
        return [info("no_camids", sides=missing)]
    # Identities that cannot be compared are refused here.
    joined_labels(query, gallery, PROTOCOLS.get("no_cameras"), camids=False)
    try:
        joined_labels(query, gallery, PROTOCOLS.get("market1501"), camids=False)
    except InputError as error:
        return [info("unlike_camids", why=str(error))]
    return []


def _has_own_rows(query: LabelledSet, gallery: LabelledSet, notes: list[Finding]) -> bool:
    """Whether queries are gallery rows as well, and can be found there."""
    shared = shared_items(query, gallery)
    if shared is None:
        return False
    try:
        check_labels(query, gallery, PROTOCOLS.get("same_set"))
    except InputError:
        notes.append(info("no_same_set", n=shared.n_query, by=shared.by))
        return False
    return True


def _junk_pids(gallery: LabelledSet, notes: list[Finding]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Conventions of pid -1 and pid 0: words for what differs from pid -1 as junk, and parts."""
    n_junk, n_distractor = (int(np.count_nonzero(gallery.pids == pid)) for pid in (JUNK_PID, DISTRACTOR_PID))
    yield "", {}
    if n_junk:
        yield f"pid {JUNK_PID} kept", {"junk_pid": None}
    else:
        notes.append(info("pid_is_absent", pid=JUNK_PID))
    if n_distractor:
        yield f"pid {JUNK_PID} and {DISTRACTOR_PID} junk", {"junk_pid": (JUNK_PID, DISTRACTOR_PID)}
    else:
        notes.append(info("pid_is_absent", pid=DISTRACTOR_PID))


# ---- published code --------------------------------------------------------------------------------------------------

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
