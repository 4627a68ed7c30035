"""``reid-dist conventions``: tables, JSON, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.small_stores import save_stores

from reid_dist import conventions, evaluate


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return save_stores(tmp_path_factory.mktemp("stores"))


def lines_of(text: str, first: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.split()[:1] == [first]]


def test_the_table(reid_dist, stores) -> None:
    done = reid_dist("conventions", *stores, "--metric", "mAP,mAP_trapezoid", "--distance", "cosine")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    plain, matlab, kept = (
        evaluate(*map(str, stores), protocol=protocol, metrics="mAP,mAP_trapezoid").metrics
        for protocol in ("market1501", "market1501_matlab", "no_cameras")
    )
    # Settings are named.
    for name, values in {"market1501": plain, "market1501_matlab": matlab, "no_cameras": kept}.items():
        if values != plain or name == "market1501":
            row = lines_of(done.out, name)[0]
            assert row[1:] == [f"{100 * values[metric]:.2f}" for metric in ("mAP", "mAP_trapezoid")]
    words = " ".join(done.out.split())
    assert "setting --protocol market1501" in words
    assert "--protocol no_cameras" in words
    assert "torchreid: mAP" in words
    assert "layumi's baseline: mAP_trapezoid" in words
    assert "no gallery row has pid -1" in words
    assert "query.zarr, 40 rows" in words


def test_the_nearest_conventions(reid_dist, stores) -> None:
    value = 100 * evaluate(*map(str, stores), protocol="no_cameras", distance="euclidean").metrics["mAP"]
    done = reid_dist("conventions", *stores, "--target", f"mAP={value:.3f}", "--target", "rank-1=2")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    words = " ".join(done.out.split())
    assert "gives all targets to the printed digits" in words
    assert f"target mAP {value:.3f}%, plus or minus 0.0005: mAP, mAP_trapezoid, mAP_R, mAP@100" in words
    assert "target CMC@1 2%, plus or minus 0.5: CMC@1, CMC_allshots@1" in words
    found = reid_dist("conventions", *stores, "--target", f"mAP={value / 100:.5f}")
    first = lines_of(found.out, "=")[0]
    assert first[1] == f"{value / 100:.6f}"
    # Metrics of equal values share a line.
    assert "mAP@100, mAP_min@100; no_cameras; euclidean" in " ".join(found.out.split())


def test_json_is_the_table_and_nothing_else(reid_dist, stores, tmp_path: Path) -> None:
    kept = tmp_path / "new" / "conventions.json"
    options = ("--target", "mAP=30", "--single-shot", "--json", "--output", kept)
    done = reid_dist("conventions", *stores, *options)
    assert done.code == 0
    sides = map(str, stores)
    assert done.out == conventions(*sides, targets="mAP=30", single_shot=True).to_json() == kept.read_text()
    content = json.loads(done.out)
    assert {row["metric"] for row in content["rows"]} >= {"mAP", "CMC_single_shot@1"}
    assert content["candidates"][0]["rows"][0] < len(content["rows"])
    assert content["codes"]["layumi's baseline"]["source"].endswith("evaluate_gpu.py")
    again = reid_dist("conventions", *stores, "--output", kept)
    again.assert_refused("is there already")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--target", "mAPP=3"), "did you mean 'mAP'"),
        (("--target", "mAP:3"), "METRIC=NUMBER"),
        (("--metric", "EER"), "no function of the ranks"),
        (("--distance", "cosinus"), "did you mean 'cosine'"),
        (("--also", "treatments+k_reciprocal"), "treatments stands for each of l2"),
        (("--also", "k_reciprocl"), "did you mean 'k_reciprocal'"),
        (("--output", "/proc/none/x.json"), "cannot write"),
    ],
)
def test_mistakes_are_reported_in_one_line(reid_dist, stores, words, part) -> None:
    reid_dist("conventions", *stores, *words).assert_refused(part)


def test_a_target_is_read_before_the_sets(reid_dist) -> None:
    reid_dist("conventions", "nowhere", "nowhere", "--target", "mAP=747").assert_refused("at most 100")
