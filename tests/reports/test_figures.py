"""Figures for papers: what their axes hold, the user's style, and what they refuse."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist import FeatureSet, compare_runs, evaluate
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.reports import Report
from reid_dist.reports.plots.chart import COLOURS, Band
from reid_dist.reports.plots.figures import figure_file
from reid_dist.reports.plots.run_curves import CURVES, curve_chart

matplotlib = pytest.importorskip("matplotlib")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    with matplotlib.rc_context({"backend": "agg"}):
        yield
        pyplot.close("all")


@pytest.fixture(scope="module")
def evaluated() -> list[Report]:
    rng = np.random.default_rng(8)
    centres, pids, camids = rng.standard_normal((20, 8)), rng.integers(0, 20, 150), rng.integers(0, 3, 150)
    reports = []
    for name, noise in (("weak", 2.0), ("strong", 0.7)):
        features = (centres[pids] + noise * rng.standard_normal((150, 8))).astype(np.float32)
        query, gallery = (
            FeatureSet.from_arrays(features[at], pids[at], camids[at]) for at in (slice(50), slice(50, 150))
        )
        options: dict[str, Any] = {"metrics": ["mAP", "CMC@1", "CMC@5", "CMC@10"], "max_rank": 20, "roc": True}
        reports.append(replace(evaluate(query, gallery, breakdowns=["gallery_size"], **options), run={"name": name}))
    return reports


def lines(ax: Any) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_xydata() for line in ax.get_lines() if not line.get_label().startswith("_")}


def test_every_curve_has_the_values_of_the_report(evaluated: list[Report]) -> None:
    for report in evaluated:
        far, tar, size = report.curves["ROC_FAR"], report.curves["ROC_TAR"], report.breakdowns["gallery_size"]
        errors = (far > 0) & (1 - tar > 5e-13)
        expected = {
            "CMC": np.column_stack([np.arange(1, 21), report.curves["CMC"]]),
            "PR": np.column_stack([np.linspace(0, 1, 101), report.curves["precision_recall"]]),
            "ROC": np.column_stack([far, tar])[far > 0],
            "DET": np.column_stack([far, 1 - tar])[errors],
            "distractor": np.column_stack([size["n_rows"], size["mAP"]]),
        }
        for curve, values in expected.items():
            figure, ax = report.plot(curve, name="ours")
            assert figure is ax.figure
            np.testing.assert_array_equal(lines(ax)["ours"], values)
    assert ax.get_xlabel() == "gallery rows"
    assert set(CURVES) == {curve.lower() for curve in expected}


def test_the_band_is_that_of_the_metrics(evaluated: list[Report]) -> None:
    for report in evaluated:
        (band,) = (layer for layer in curve_chart("cmc", {"": report}, bands=True).layers if isinstance(layer, Band))
        assert report.confidence is not None
        for rank in (1, 5, 10):
            assert [band.low[rank - 1], band.high[rank - 1]] == report.confidence["intervals"][f"CMC@{rank}"]
        assert len(report.plot("CMC")[1].collections) == 1
        without = replace(report, per_query={"pid": report.per_query["pid"]})
        assert not without.plot("CMC")[1].collections, "without ranks there is no band"


def test_runs_are_drawn_into_the_same_axes(evaluated: list[Report]) -> None:
    figure, ax = pyplot.subplots()
    for report in evaluated:
        assert report.plot("cmc", ax) == (figure, ax)
    assert list(lines(ax)) == ["weak", "strong"]
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.get_lines()}) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["weak", "strong"]
    lowest = min(report.curves["CMC"].min() for report in evaluated)
    assert ax.get_ylim()[0] <= lowest, "both are inside"
    _, together = compare_runs(evaluated, n_resamples=100).plot("CMC")
    for name, values in lines(together).items():
        np.testing.assert_array_equal(values, lines(ax)[name])


def test_runs_that_do_not_compare_name_their_group(make_report: Callable[..., Report]) -> None:
    runs = [make_report(n_query=30, n_invalid=0, seed=seed, k=None) for seed in (1, 2)]
    other = replace(runs[1], protocol={**runs[1].protocol, "name": "no_cameras"})
    _, ax = compare_runs([runs[0], other], names=["a", "a"], metrics=["mAP"], n_resamples=100).plot("PR")
    assert [name.partition(" (")[0] for name in lines(ax)] == ["a", "a"]
    assert any("no_cameras" in name for name in lines(ax))


def test_the_style_sheet_of_the_user_is_followed(evaluated: list[Report], tmp_path: Path) -> None:
    plain = evaluated[0].plot("PR")[1].get_lines()[0]
    assert plain.get_color() == COLOURS[0].light
    cycle = matplotlib.cycler(color=["#123456"])
    with matplotlib.rc_context({"axes.prop_cycle": cycle, "lines.linewidth": 7}):
        styled = evaluated[0].plot("PR")[1].get_lines()[0]
    assert (styled.get_color(), styled.get_linewidth()) == ("#123456", 7)
    sheet = tmp_path / "mine.mplstyle"
    sheet.write_text("savefig.dpi: 50\n")
    chart, before = curve_chart("pr", {"": evaluated[0]}), dict(matplotlib.rcParams)
    assert png_size(figure_file(chart, "png", width=4, height=3, style=str(sheet))) == (200, 150)
    assert png_size(figure_file(chart, "png", width=4)) == (1200, 864)
    assert dict(matplotlib.rcParams) == before


def png_size(content: bytes) -> tuple[int, int]:
    assert content.startswith(b"\x89PNG")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_equal_figures_are_equal_files(evaluated: list[Report]) -> None:
    chart = curve_chart("cmc", {"$x$ and $": evaluated[0], "_b": evaluated[1]}, bands=True)
    for form, beginning in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        first, second = (figure_file(chart, form, font_size=9) for _ in range(2))
        assert first == second
        assert first.startswith(beginning)


def test_what_cannot_be_drawn_is_refused(evaluated: list[Report], monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(evaluated[0], curves={"CMC": evaluated[0].curves["CMC"]}, breakdowns={})
    for curve in ("PR", "ROC", "DET", "distractor"):
        with pytest.raises(InputError, match=curve.lower()):
            bare.plot(curve)
    with pytest.raises(InputError, match="nope"):
        evaluated[0].plot("distractor", metric="nope")
    with pytest.raises(UnknownNameError, match="cmd"):
        bare.plot("cmd")
    other = replace(bare, curves={"CMC_single_shot": bare.curves["CMC"]})
    with pytest.raises(InputError, match="CMC, CMC_single_shot"):
        curve_chart("cmc", {"a": bare, "b": other})
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"reid-dist\[plot\]"):
        bare.plot("CMC")
