"""The examples in the help of every command that needs no more than files run as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from help_texts import examples

from reid_dist import FeatureSet

# Nights and histories are run where they are tested.
COMMANDS = (
    *("ingest", "append", "check", "evaluate", "run", "plan", "pairs", "pool", "splits", "sweep", "compare", "average"),
    *("table", "plot", "report", "list", "schema"),
)
EVALUATED = {
    "compare": ("plain", "reranked"),
    "table": ("plain", "reranked", "expanded"),
    "plot": ("plain", "reranked"),
    "average": ("split1", "split2", "split3", "g1", "g2"),
    "report": ("plain", "reranked", "other"),
}
COMPUTING = ("evaluate", "run", "splits", "sweep")
N_QUERY, N_GALLERY, DIM = 24, 60, 8


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with whatever the examples name: stores, files of features, labels, distances and lists."""
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((6, DIM))
    held: dict[str, np.ndarray] = {}
    for side, n in (("query", N_QUERY), ("gallery", N_GALLERY)):
        pids, camids = rng.integers(0, 6, n), rng.integers(1, 4, n)
        features = (centres[pids] + rng.standard_normal((n, DIM))).astype(np.float32)
        held |= {f"{side}_f": features, f"{side}_label": pids, f"{side}_cam": camids}
        columns = {"tracklet": 4 * pids + camids, "clothes": rng.integers(0, 2, n)}
        store = FeatureSet.from_arrays(features, pids, camids, item_ids=np.arange(n), columns=columns)
        for folder in ("data", "data/market", "data/other", "data/market1501", "data/clothes"):
            store.save(tmp_path / folder / f"{side}.zarr")
        store.save(tmp_path / f"{side[0]}.zarr")
    for path in ("set.zarr", "data/vid.zarr", "data/rgb.zarr", "data/mars/gallery.zarr", "data/market/multi.zarr"):
        store.save(tmp_path / path)
    FeatureSet.open(tmp_path / "q.zarr").save(tmp_path / "data" / "ir.zarr")
    media = {"template": pids, "media": camids}
    FeatureSet.from_arrays(features, pids, columns=media).save(tmp_path / "data" / "ijbc" / "images.zarr")
    pytest.importorskip("scipy.io").savemat(tmp_path / "pytorch_result.mat", held)
    np.save(tmp_path / "gallery.npy", held["gallery_f"])
    for name, labels in (("pids", held["gallery_label"]), ("cams", held["gallery_cam"])):
        (tmp_path / f"{name}.txt").write_text("".join(f"{label}\n" for label in labels))
    np.savez(tmp_path / "features.npz", emb=held["gallery_f"], vid=held["gallery_label"])
    np.save(tmp_path / "features.npy", rng.standard_normal((3400, DIM)).astype(np.float32))
    (tmp_path / "list.txt").write_text("".join(f"{row % 9:04d}_c{1 + row % 5}s1_{row}_00.jpg\n" for row in range(3400)))
    (tmp_path / "query.txt").write_text("".join(f"{row % 9:04d}_c{1 + row % 5}s1_{row}_00.jpg\n" for row in range(40)))
    rows = "".join(f"{row % 9},{row < 20},{row >= 20}\n" for row in range(3400))
    (tmp_path / "df.csv").write_text(f"label,is_query,is_gallery\n{rows}")
    (tmp_path / "features").mkdir()
    for rank in range(2):
        rows = np.arange(6) + 4 * rank
        np.savez(tmp_path / "features" / f"rank{rank}.npz", features=features[rows], pids=pids[rows], item_ids=rows)
    (tmp_path / "bad.txt").write_text("item_id\n3\n")
    FeatureSet.from_arrays(features, pids, camids, np.arange(n, 2 * n), columns=columns).save(tmp_path / "rank1.zarr")
    more = {"features": features, "pids": pids, "camids": camids, "item_ids": np.arange(2 * n, 3 * n)}
    np.savez(tmp_path / "today.npz", **more, **{f"columns/{name}": values for name, values in columns.items()})
    paths = np.array(["0001_c1s1_1_00.jpg"])
    FeatureSet.from_arrays(features[:1], pids[:1], camids[:1], image_paths=paths).save(tmp_path / "data" / "named.zarr")
    for path in ("faces.zarr", "g1.zarr", "g2.zarr"):
        store.save(tmp_path / path)
    (tmp_path / "lfw_pairs.txt").write_text("".join(f"{row} {row + 1} {row % 2}\n" for row in range(40)))
    rows = "".join(f"{row},{59 - row},{row % 2}\n" for row in range(40))
    (tmp_path / "matches.csv").write_text(f"left,right,same\n{rows}")
    np.savez(tmp_path / "labels.npz", **{name: array for name, array in held.items() if not name.endswith("_f")})
    np.save(tmp_path / "distmat.npy", rng.random((N_QUERY, N_GALLERY)))
    lists = ", ".join(f'{{"ok": [{row}, {row + 1}], "junk": []}}' for row in range(N_QUERY))
    (tmp_path / "gt.json").write_text(f"[{lists}]")
    (tmp_path / "splits.json").write_text("[[0, 1, 2, 3, 4, 5, 6, 7], [20, 21, 22, 23, 24, 25, 26, 27]]")
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    for name in ("pipelines", "cluster_configs"):
        (tmp_path / name).symlink_to(Path(__file__).parents[2] / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", COMMANDS)
def test_they_run_as_they_stand(reid_dist, workplace: Path, name: str) -> None:
    # Runs that `compare`, `table`, `average` and `report` read.
    for run in EVALUATED.get(name, ()):
        words = ("q.zarr", "g.zarr", "--cluster", "threads.yaml", "--output", f"results/{run}")
        assert reid_dist("evaluate", *words).code == 0
    # Targets of examples of other commands must be free for those of this one.
    for target in ("data/market", "data/gallery.zarr") if name == "ingest" else ():
        (workplace / target).rename(workplace / f"{target}-before")
    ran = 0
    for line in examples(reid_dist(name, "--help").out, name):
        words = shlex.split(line)[1:]
        # Some pipelines are for larger sets; those of overrides are for these.
        if any(".db#" in word for word in words) or (name in ("run", "plan") and "--set" not in words):
            continue
        target = words[words.index(">") + 1] if ">" in words else None
        words = words[: words.index(">")] if target else words
        where = ("--cluster", "threads.yaml") if name in COMPUTING and "--cluster" not in words else ()
        done = reid_dist(*words, *where)
        assert done.code == 0, (line, done.err)
        assert done.out, line
        if "--output" in words:
            assert (workplace / words[words.index("--output") + 1]).exists(), line
        ran += 1
    assert ran
