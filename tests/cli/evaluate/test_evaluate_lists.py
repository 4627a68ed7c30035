"""The commands that list names, and the help of `reid-dist evaluate`."""

from __future__ import annotations

import pytest

from reid_dist.metrics.definitions import METRICS
from reid_dist.relevance.protocols import PROTOCOLS


@pytest.mark.parametrize(("kind", "registry"), [("metrics", METRICS), ("protocols", PROTOCOLS)])
def test_lists_tell_name_and_source(reid_dist, monkeypatch, kind, registry):
    monkeypatch.setenv("COLUMNS", "400")
    lines = reid_dist("list", kind).out.splitlines()
    for entry in registry:
        (line,) = (line for line in lines if line.split(" ")[0] == entry.name)
        assert entry.summary in line
        assert entry.source in line
        assert len(entry.source) > 3


def test_what_is_new_is_listed(reid_dist):
    metrics = reid_dist("list", "metrics").out
    for name in ("mAP_trapezoid", "mAP@k", "mAP_found@k", "CMC_allshots@k", "CMC_single_shot@k", "P_clipped@k",
                 "TAR@FAR=x", "EER", "DIR@FAR=x"):  # fmt: skip
        assert f"\n{name} " in metrics, name
    protocols = reid_dist("list", "protocols").out
    for name in ("market1501_matlab", "allshots", "cuhk03", "cuhk03_separate_cameras", "oxford", "revisitop_easy",
                 "revisitop_medium", "revisitop_hard"):  # fmt: skip
        assert f"\n{name} " in protocols, name


def test_help_names_every_option(reid_dist):
    text = reid_dist("evaluate", "--help").out
    names = """ties breakdown gallery-size gallery-order single-shot-draws roc seed confidence ground-truth distances
    lists pictures image-root topk"""
    for name in names.split():
        assert f"  --{name} " in text, name
