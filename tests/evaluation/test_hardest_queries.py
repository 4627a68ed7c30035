"""The hardest queries of a report, each with its nearest relevant item."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, Report, compose_protocol, evaluate

N_QUERY, N_GALLERY, DIM = 60, 200, 8


def sides(seed: int) -> tuple[FeatureSet, FeatureSet]:
    """Two sets whose items have names of persons, and files."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(15, DIM))
    made = []
    for side, n in (("q", N_QUERY), ("g", N_GALLERY)):
        who, cameras = rng.integers(0, 15, n), rng.integers(1, 5, n)
        features = centres[who] + 1.5 * rng.normal(size=(n, DIM))
        names = [f"person {each}" for each in who]
        made.append(
            FeatureSet.from_arrays(features, names, cameras, image_paths=[f"{side}/{row}.jpg" for row in range(n)])
        )
    return made[0], made[1]


def nearest_relevant(
    query: FeatureSet, gallery: FeatureSet, row: int, cameras: tuple[int, ...]
) -> tuple[int, int, float]:
    """Row, rank and distance of the nearest relevant item in some cameras, by comparing all distances."""
    one, many = query.read(row, row + 1)[0].astype(float), gallery.read(0, N_GALLERY).astype(float)
    distance = 1 - many @ one / np.linalg.norm(many, axis=1) / np.linalg.norm(one)
    same = np.array(gallery.pid_names)[gallery.pids - 1] == query.pid_names[query.pids[row] - 1]
    own = gallery.camids == query.camids[row]
    order = [
        at
        for at in np.lexsort((np.arange(N_GALLERY), distance))
        if gallery.camids[at] in cameras and not (same & own)[at]
    ]
    rank = next(rank for rank, at in enumerate(order, 1) if same[at])
    return int(order[rank - 1]), rank, distance[order[rank - 1]]


@pytest.mark.parametrize("far", [(1, 2, 3, 4), (1, 3)])
def test_they_are_those_of_lowest_ap_with_the_nearest_item_of_their_person(
    far: tuple[int, ...], tmp_path: Path
) -> None:
    query, gallery = sides(3)
    rules = compose_protocol("some", base="market1501", query_cameras=(2, 4), gallery_cameras=far)
    report = evaluate(query, gallery, protocol=rules, topk=5, progress=False)
    average = report.per_query["AP"]
    assert [each["query"] for each in report.hardest] == report.hardest_queries().tolist()
    assert len(report.hardest) == 20
    assert np.all(np.diff([average[each["query"]] for each in report.hardest]) >= 0)
    for each in report.hardest:
        row, rank, distance = nearest_relevant(query, gallery, each["query"], far)
        assert (each["gallery"], each["rank"]) == (row, rank)
        assert each["rank"] == report.per_query["first_rank"][each["query"]]
        assert each["distance"] == pytest.approx(distance)
        assert each["paths"] == [f"q/{each['query']}.jpg", f"g/{row}.jpg"]
        assert each["pids"][0] == each["pids"][1] == query.pid_names[query.pids[each["query"]] - 1]
        assert each["camids"] == [query.camids[each["query"]], gallery.camids[row]]
    report.save(tmp_path / "run")
    assert Report.load(tmp_path / "run").hardest == report.hardest
    assert f"g/<wbr>{report.hardest[0]['gallery']}.jpg" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("expand", [None, "aqe(k=1)"])
def test_rows_of_split_identities_are_those_of_the_whole_sets(expand: str | None) -> None:
    rng = np.random.default_rng(1)
    n = 40
    centres = rng.normal(size=(n, 32))
    # Of each identity, queries in cameras 2 and 3 and four items in cameras 1 to 3; camera 9 does not count.
    who, cameras = np.repeat(np.arange(n), 3), np.tile([9, 2, 3], n)
    query = centres[who] + 0.2 * rng.normal(size=(len(who), 32))
    owner = np.repeat(np.arange(n), 4)
    gallery = centres[owner] + 0.2 * rng.normal(size=(len(owner), 32))
    query[who == 7] = query[who == 4] + 0.05 * rng.normal(size=(3, 32))
    gallery[owner == 7] = gallery[owner == 4] + 0.05 * rng.normal(size=(4, 32))
    near = FeatureSet.from_arrays(query, who + 1, cameras)
    far = FeatureSet.from_arrays(gallery, owner + 1, np.tile([1, 2, 3, 1], n))
    rules = compose_protocol("some", base="market1501", query_cameras=(2, 3))
    found = evaluate(near, far, protocol=rules, topk=20, expand=expand, progress=False).data_problems
    assert found is not None
    (pair,) = found["identities"]
    assert pair["pids"] == [5, 8]
    assert near.pids[pair["queries"]].tolist() == pair["pids"]
