"""Names of metrics as they are written and as they are read."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist.errors import InputError, UnknownNameError
from reid_dist.metrics.metric import METRICS, parse_metric


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mAP", "mAP"),
        ("mAP@5", "mAP@5"),
        ("rank-1", "CMC@1"),
        ("R5", "CMC@5"),
        ("R@5", "R@5"),
        ("Hit@10", "CMC@10"),
        ("MAP@R", "mAP_R"),
        ("macro_mAP", "macro_mAP"),
        ("TAR@FAR=0.01", "TAR@FAR=0.01"),
    ],
)
def test_spellings(text: str, name: str) -> None:
    assert parse_metric(text).name == name


def test_names_without_parameters_are_read_alone() -> None:
    alone = [name for name in METRICS.names() if not METRICS.get(name).has_parameter]
    assert [parse_metric(name).name for name in alone] == alone


@pytest.mark.parametrize("name", ["CMC", "CMC_allshots", "P"])
def test_a_rank_is_asked_for(name: str) -> None:
    with pytest.raises(InputError, match=f"metric '{name}' needs a rank: {name}@10"):
        parse_metric(name)


@pytest.mark.parametrize("text", ["CMC@0", "CMC@-1", "CMC@x", "P@1.5", "CMC@99999999999"])
def test_ranks_are_positive_integers(text: str) -> None:
    with pytest.raises(InputError, match="must be a positive integer"):
        parse_metric(text)


@pytest.mark.parametrize(("text", "words"), [("TAR", "needs a false accept rate"), ("TAR@1", "takes a false accept")])
def test_a_rate_is_asked_for(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_metric(text)


@pytest.mark.parametrize("text", ["mAPP", "mAPP@3", "macro_macro_mAP", ""])
def test_unknown_names(text: str) -> None:
    with pytest.raises(UnknownNameError):
        parse_metric(text)


def test_a_macro_mean_is_the_mean_of_identities() -> None:
    values, pids = np.array([1.0, 0.0, 0.5, np.nan, np.nan]), np.array([7, 7, 8, 8, 9])
    assert parse_metric("mAP").mean(values, pids) == 0.5
    macro = parse_metric("macro_mAP")
    assert macro.mean(values, pids) == pytest.approx((0.5 + 0.5) / 2)
    assert macro.mean(np.array([1.0, 0.0, 0.25, np.nan, np.nan]), pids) == pytest.approx((0.5 + 0.25) / 2)
    zeros = macro.mean(values, pids, zero_for_invalid=True)
    assert zeros == pytest.approx((0.5 + 0.25 + 0.0) / 3)
