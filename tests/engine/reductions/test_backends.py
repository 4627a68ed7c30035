"""The table of needs and backends: what serves a need, alone and beside others, and what it reads."""

from __future__ import annotations

import numpy as np
import pytest
from support.exact_products import free_integers

from reid_dist import FeatureSet, evaluate
from reid_dist.engine.reductions.costs import TABLE, Costs, Need, Precision


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("need", Need)
def test_every_need_is_served_from_every_precision_on(need: Need, known: bool) -> None:
    """In the precision itself or the next one that serves it; the one before it does not."""
    chain = [each for each in TABLE if TABLE[each].serves(need, known=known)]
    assert Precision.PLAIN in chain
    costs = Costs(TABLE, 512, known)
    for first in TABLE:
        later = [each for each in chain if each > first]
        assert costs.following(first, need) == (later[0] if later else None)
        found = costs.serving(first, need)
        assert found in chain
        assert found == (first if first in chain else later[0] if later else chain[-1])


def test_known_pairs_are_beside_products_of_integers_where_open_pairs_are_decided() -> None:
    served = {need for need in Need if TABLE[Precision.INTEGERS].serves(need, known=True)}
    assert served == {Need.RANKS, Need.GROUPS, Need.SINGLE_SHOT, Need.VERIFICATION}


def test_outputs_of_one_pass_leave_ranks_in_eight_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.delenv("REID_DIST_SCREEN", raising=False)
    free_integers(monkeypatch)
    rng = np.random.default_rng(0)
    pids = rng.integers(0, 30, 660)
    rows = rng.normal(size=(30, 256))[pids] + 0.1 * rng.normal(size=(660, 256))
    rows = rows.astype(np.float32)
    query, gallery = (
        FeatureSet.from_arrays(rows[cut], pids[cut], np.arange(len(pids[cut])) % 5)
        for cut in (slice(0, 100), slice(100, None))
    )
    found = {
        name: evaluate(query, gallery, **options).environment["products"]
        for name, options in {
            "ranks": {"metrics": ["mAP"]},
            "lists": {"metrics": ["mAP"], "topk": 3},
            "thresholds": {"metrics": ["mAP", "TAR@FAR=0.1"]},
            "groups": {"metrics": ["mAP"], "collapse": "pid"},
            "single-shot": {"protocol": "cuhk03", "metrics": ["CMC_single_shot@1"]},
        }.items()
    }
    assert found == dict.fromkeys(("ranks", "lists", "thresholds", "groups", "single-shot"), "int8")
