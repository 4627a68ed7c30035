"""Kinds of failures, against loops over single lists."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist.reports import TopK
from reid_dist.reports.failure_kinds import KINDS, CommonLabels, find_failures

ALL = [kind.name for kind in KINDS]


def kinds_of(items, query, *, valid=True, typical=1.0, distances=None) -> set[str]:
    """Kinds of one list by the definitions; an item is (pid, camera, mark, distance), a query (pid, camera)."""
    kept = [item for item in items if item[2] in ("right", "wrong")]
    found = set()
    if valid and kept and kept[0][2] == "wrong" and kept[0][0] != query[0]:
        found.add("same_camera" if kept[0][1] == query[1] != -1 else "look_alike")
    if valid and not any(item[2] == "right" for item in kept):
        found.add("not_listed")
    near = kept[:5]
    if len(near) == 5 and all(item[2] == "wrong" and item[0] != query[0] for item in near):
        for pid in {item[0] for item in near} - {-1, 0}:
            cameras = [item[1] for item in near if item[0] == pid]
            # -1 is an unknown camera.
            if len(cameras) >= 4 and len(set(cameras) - {-1}) > 1:
                found.add("label_suspect")
    for pid, _, mark, distance in kept:
        if distance <= 0.001 * typical:
            found.add("duplicate")
            if mark == "wrong" and pid != query[0]:
                found.add("label_suspect")
    return found


def made(lists, queries, gallery):
    """Lists of (row, mark, distance), queries and gallery items of (pid, camera), as the package has them."""
    k = max(map(len, lists))
    index, distance = np.full((len(lists), k), -1), np.full((len(lists), k), np.inf)
    junk, relevant = np.zeros((len(lists), k), bool), np.zeros((len(lists), k), bool)
    for at, items in enumerate(lists):
        for place, (row, mark, value) in enumerate(items):
            index[at, place], distance[at, place] = row, value
            junk[at, place], relevant[at, place] = mark == "junk", mark == "right"
    labels = [np.array(column) for side in (queries, gallery) for column in zip(*side, strict=True)]
    topk = TopK(index=index, distance=distance, junk=junk, relevant=relevant)
    return topk, CommonLabels(labels[0], labels[2], labels[1], labels[3])


def test_random_lists_against_the_definitions() -> None:
    rng = np.random.default_rng(0)
    cameras = [-1, 1, 2, 3]
    gallery = [(int(rng.integers(-1, 4)), int(rng.choice(cameras))) for _ in range(60)]
    lists, queries, valid = [], [], []
    for _ in range(3000):
        n = int(rng.integers(0, 9))
        query = (int(rng.integers(0, 4)), int(rng.choice(cameras)))
        rows = rng.choice(60, n, replace=False)
        if rng.random() < 0.4:
            # Lists of mostly one identity, as suspects need them.
            rows = np.array(sorted(rows, key=lambda row: gallery[row][0]), dtype=int)
        distances = np.sort(np.where(rng.random(n) < 0.05, rng.choice([0.0, 0.0005, 0.002], n), rng.random(n)))
        marks = [
            "junk"
            if gallery[row][0] == -1 or rng.random() < 0.1
            else "right"
            if gallery[row][0] == query[0] and gallery[row][1] != query[1]
            else "wrong"
            for row in rows
        ]
        lists.append([(int(row), mark, float(d)) for row, mark, d in zip(rows, marks, distances, strict=True)])
        queries.append(query)
        valid.append(bool(rng.random() < 0.9))
    topk, labels = made(lists, queries, gallery)
    typical = float(np.median([items[-1][2] for items in lists if items]))
    found = find_failures(topk, np.array(valid), labels)
    assert list(found) == ALL
    seen = dict.fromkeys(ALL, 0)
    for at, items in enumerate(lists):
        described = [(*gallery[row], mark, d) for row, mark, d in items]
        expected = kinds_of(described, queries[at], valid=valid[at], typical=typical)
        assert {name for name in ALL if found[name][at]} == expected, (at, described, queries[at])
        for name in expected:
            seen[name] += 1
    assert min(seen.values()) > 20, seen


def test_a_duplicate_of_another_identity_has_a_suspect_label_though_its_query_is_invalid() -> None:
    topk, labels = made([[(0, "wrong", 0.0), (1, "wrong", 2.0)]], [(1, 1)], [(2, 2), (3, 2)])
    found = find_failures(topk, np.array([False]), labels)
    assert {name for name, values in found.items() if values[0]} == {"duplicate", "label_suspect"}


@pytest.mark.parametrize(("least", "expected"), [(-1e-17, True), (-0.5, False)])
def test_distances_below_0(least: float, expected: bool) -> None:
    # A rounding is a distance of 0; where distances may be negative, 0 means nothing.
    topk, labels = made([[(0, "right", least), (1, "wrong", 0.0), (1, "wrong", 1.0)]], [(1, 1)], [(1, 2), (2, 2)])
    assert find_failures(topk, np.array([True]), labels)["duplicate"][0] == expected


def test_without_labels_cameras_or_relevance() -> None:
    topk, labels = made([[(0, "wrong", 1.0), (1, "right", 2.0)]], [(1, 1)], [(2, 1), (1, 2)])
    valid = np.array([True])
    assert list(find_failures(topk, valid, None)) == ["not_listed", "duplicate"]
    without = find_failures(topk, valid, CommonLabels(labels.query_pids, labels.gallery_pids))
    assert [name for name in ALL if name not in without] == ["same_camera"]
    assert without["look_alike"][0]
    assert find_failures(TopK(index=topk.index, distance=topk.distance), valid, labels) == {}


@pytest.mark.parametrize(
    ("cameras", "expected"),
    [([2, 2, 2, 2, 2], False), ([2, 2, 2, 3, 2], True), ([-1, -1, -1, -1, -1], False), ([-1, 2, 2, 2, 2], False),
     ([-1, 2, -1, 3, -1], True)],
)  # fmt: skip
def test_one_identity_in_two_known_cameras_is_suspect(cameras: list[int], expected: bool) -> None:
    gallery = [(7, camera) for camera in cameras]
    topk, labels = made([[(row, "wrong", 1.0 + row) for row in range(5)]], [(1, 9)], gallery)
    assert find_failures(topk, np.array([True]), labels)["label_suspect"][0] == expected
