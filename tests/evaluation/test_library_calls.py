"""The library as a notebook uses it: short reports, data frames, paths in place of sets, bars, types."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import reid_dist
from reid_dist import (
    DistanceBlock,
    FeatureSet,
    Report,
    evaluate,
    evaluate_distances,
    evaluate_splits,
    ingest,
    k_reciprocal_graph,
    nearest,
    reranked_distances,
    sweep_parameters,
)
from reid_dist.core.findings import info
from reid_dist.errors import InputError

ROOT = Path(__file__).parents[2]
RERANK = "k_reciprocal(k1=4,k2=2)"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores, and a file of both sides beside them."""
    folder = tmp_path_factory.mktemp("sides")
    rng = np.random.default_rng(2)
    held = {}
    for name, n in (("query", 12), ("gallery", 48)):
        pids, camids = np.arange(n) % 6, np.arange(n) % 5
        features = rng.standard_normal((n, 8)).astype(np.float32)
        FeatureSet.from_arrays(features, pids, camids).save(folder / f"{name}.zarr")
        held |= {f"{name}_f": features, f"{name}_label": pids, f"{name}_cam": camids}
    np.savez(folder / "both.npz", **held)
    return folder / "query.zarr", folder / "gallery.zarr"


@pytest.fixture(scope="module")
def report(sides: tuple[Path, Path]) -> Report:
    return evaluate(*sides)


def test_what_a_notebook_shows_is_escaped(report: Report) -> None:
    noted = Report(**{name: getattr(report, name) for name in ("metrics", "curves", "counts", "per_query", "protocol",
                   "distance", "inputs")},
                   notes=[info("text", text="a <b> & c"), info("text", text="x" * 1000)])  # fmt: skip
    shown = noted._repr_html_()
    assert "a &lt;b&gt; &amp; c" in shown
    assert f"{100 * report.metrics['mAP']:.2f}%" in shown
    assert len(shown) < 3000
    assert len(repr(noted)) < 1500


@pytest.mark.slow
def test_data_frames(report: Report) -> None:
    pytest.importorskip("pandas")
    frame = report.to_pandas()
    assert (frame.index.name, list(frame.columns[:2])) == ("query", ["pid", "camid"])
    assert set(frame.columns) == set(report.per_query)
    assert frame["AP"].mean() == pytest.approx(report.metrics["mAP"], abs=1e-15)
    assert frame.groupby("camid")["AP"].count().sum() == report.counts["n_valid"]
    metrics = report.to_pandas("metrics")
    assert metrics["value"].to_dict() == report.metrics
    assert metrics.loc["mAP", ["low", "high"]].tolist() == report.confidence["intervals"]["mAP"]
    with pytest.raises(InputError, match="unknown table 'queries'"):
        report.to_pandas("queries")


def test_without_pandas_the_error_names_what_to_install(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=re.escape("pip install 'reid-dist[pandas]'")):
        report.to_pandas()


def test_arrays_are_sources(sides: tuple[Path, Path], tmp_path: Path) -> None:
    """As tuples, wherever a feature set or a path is, and a matrix where a block of distances is."""
    sets = query, gallery = tuple(map(FeatureSet.open, sides))
    arrays = near, far = tuple((each.read(0, each.n_rows), each.pids, each.camids) for each in sets)
    expected = evaluate(*sets, confidence=None, metrics=["mAP"])
    for given in (arrays, (near, sides[1]), (query, far)):
        assert evaluate(*given, confidence=None, metrics=["mAP"]).result_digest == expected.result_digest
    named = (*near, query.item_ids), (*far, gallery.item_ids)
    assert evaluate(*named, metrics=["mAP"]).inputs["query"]["content_digest"] == query.content_digest
    assert nearest(*arrays, k=3).index.tolist() == nearest(*sets, k=3).index.tolist()
    assert k_reciprocal_graph(far, rerank=RERANK).n_items == gallery.n_rows
    found = reranked_distances(*arrays, rerank=RERANK)
    np.save(tmp_path / "found.npy", found)
    labels = near[1:], far[1:]
    given = evaluate_distances(DistanceBlock.from_array(found), *sets, confidence=None)
    for distances in (found, tmp_path / "found.npy", str(tmp_path / "found.npy")):
        assert evaluate_distances(distances, *labels, confidence=None).result_digest == given.result_digest
    for wrong, message in (
        (
            (near[0],),
            r"query is a tuple of 1 entry; give \(features, pids, camids\) or \(features, pids, camids, item_ids\)",
        ),
        ((near[0], near[1][1:]), "query: pids has 11 entries for 12 rows of features"),
    ):
        with pytest.raises(InputError, match=message):
            evaluate(wrong, gallery)
    with pytest.raises(InputError, match="query: pids must be one label per row"):
        evaluate_distances(found, near, far)


def test_progress_is_shown_on_standard_error(sides: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    calls = (
        lambda progress: evaluate(*sides, progress=progress, confidence=None, metrics=["TAR@FAR=0.1"]),
        lambda progress: nearest(*sides, k=2, progress=progress),
        lambda progress: reranked_distances(*sides, rerank=RERANK, progress=progress),
        lambda progress: k_reciprocal_graph(sides[1], rerank=RERANK, progress=progress),
        lambda progress: sweep_parameters(*sides, expand="aqe", k="0:1", progress=progress),
        lambda progress: evaluate_splits(*sides, repeats=2, progress=progress),
    )
    for call in calls:
        for progress in (None, False):
            call(progress)
            assert capfd.readouterr() == ("", "")
        call(True)
        out, err = capfd.readouterr()
        assert out == ""
        # Whatever was begun is done.
        counts = re.findall(r"(\d+)/(\d+)", err)
        assert counts
        assert all(done == total for done, total in counts)
        with pytest.raises(InputError, match="progress must be True, False, None or a Progress, found str"):
            call("yes")


def test_ingest_is_public(sides: tuple[Path, Path], tmp_path: Path) -> None:
    assert "ingest" in reid_dist.__all__
    assert "Parameters" in (ingest.__doc__ or "")
    stores = ingest(sides[0].parent / "both.npz", tmp_path / "stores", drop_pids=[5])
    assert [store.n_rows for store in stores] == [10, 40]


USER = """
from pathlib import Path
from typing import assert_type

import numpy as np

from reid_dist import FeatureSet, Report, evaluate, ingest, nearest

query, gallery = ingest("features.npz", "data", drop_pids=[-1])
assert_type(query, FeatureSet)
report = evaluate(Path("q.zarr"), gallery, metrics="rank-1", progress=True)
assert_type(report, Report)
share: float = report.metrics["CMC@1"]
frame = report.to_pandas("metrics")
rows = nearest("q.zarr", gallery, k=3).index.tolist()
held = FeatureSet.from_arrays(np.zeros((2, 3)), [1, 2], workspace=Path("work"))
"""
WRONG = "\nevaluate(query, gallery, max_rank='ten')\n"


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "reid_dist" / "py.typed").is_file()
    # Everything in the package folder that git does not ignore goes into the wheel.
    assert 'packages = ["reid_dist"]' in (ROOT / "pyproject.toml").read_text()
    ignored = subprocess.run(["git", "check-ignore", "-q", "reid_dist/py.typed"], cwd=ROOT, check=False)
    assert ignored.returncode == 1


@pytest.mark.slow
def test_types_reach_a_script_of_a_user(tmp_path: Path) -> None:
    """A clean script passes the strict rules, and a wrong argument is found."""
    (tmp_path / "user.py").write_text(USER + WRONG)
    # With the settings of the package, what a check of it found is used again.
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    words = [sys.executable, "-m", "mypy", *settings, "user.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=290)
    (error,) = (line for line in done.stdout.splitlines() if "error:" in line)
    assert 'Argument "max_rank" to "evaluate" has incompatible type "str"' in error, done.stdout
    assert f"user.py:{len((USER + WRONG).splitlines())}:" in error


_PLAIN = """
import sys
import numpy as np
import reid_dist
rows = reid_dist.FeatureSet.from_arrays(np.eye(6, dtype=np.float32), [1, 1, 2, 2, 3, 3], [0, 1, 0, 1, 0, 1])
reid_dist.evaluate(rows, rows)
print(*(name for name in sys.modules if name.startswith("reid_dist")))
"""


def test_a_plain_evaluation_imports_what_it_uses_alone() -> None:
    """No benchmarks, splits and sweeps, no pages, and no outputs that are not requested."""
    done = subprocess.run([sys.executable, "-c", _PLAIN], capture_output=True, text=True, check=True, timeout=120)
    found = done.stdout.split()
    others = {
        "evaluation.benchmarks", "evaluation.splits", "evaluation.sweeps", "evaluation.rerank_effect",
        "evaluation.counted_rows", "evaluation.data_problem_search", "engine.threshold_passes", "engine.verification",
        "engine.outputs.group_ranks", "engine.outputs.protocol_ranks", "engine.outputs.single_shot_curves",
        "reports.html", "reports.comparison",
    }  # fmt: skip
    assert not {f"reid_dist.{name}" for name in others} & {*found}
    assert len(found) <= 150


def test_bars_in_a_notebook_need_no_widgets(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """They replace one output of the cell; rich's own bars would warn, which is an error here."""
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(data)

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        assert not shown
        shown.append(data)
        return Handle()

    # As rich recognises a notebook.
    monkeypatch.setattr(builtins, "get_ipython", type("ZMQInteractiveShell", (), {}), raising=False)
    module: Any = ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    evaluate(*sides, progress=True)
    assert {name for each in shown for name in each} == {"text/plain"}
    last = shown[-1]["text/plain"].splitlines()
    assert any(line.startswith("tiles of the gallery") for line in last)
    assert all(done == total for done, total in re.findall(r"(\d+)/(\d+)", shown[-1]["text/plain"]))
    assert max(map(len, last)) <= 100
