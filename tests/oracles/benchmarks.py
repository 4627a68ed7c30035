"""Published evaluation codes, read as rules: what an item is to a query, and how the list is read.

An item is GOOD, BAD or JUNK, where JUNK leaves the list.  A rule is written from the code that it names, not from a
protocol of the package.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from oracles.rank_metrics import value
from oracles.single_shot import expected_curve

GOOD, BAD, JUNK = "good", "bad", "junk"


def torchreid(query, gallery):
    """deep-person-reid eval_market1501: `remove` is same pid and same camera; junk images (-1) are never loaded."""
    if gallery.pid == -1 or (gallery.pid == query.pid and gallery.camid == query.camid):
        return JUNK
    return GOOD if gallery.pid == query.pid else BAD


def every_camera(query, gallery):
    """IRRA rank, VERI-Wild mAP.py, eval_regdb, recall over two sets: the label alone."""
    if gallery.pid == -1:
        return JUNK
    return GOOD if gallery.pid == query.pid else BAD


def without_itself(query, gallery):
    """evaluate_recall.m puts infinity on the diagonal; holidays_map.py skips the image of the query."""
    return JUNK if gallery.item_id == query.item_id else every_camera(query, gallery)


def clothes(mode):
    """Simple-CCReID evaluate_with_clothes: sets of gallery items by pid, camera and clothes."""

    def judge(query, gallery):
        person, camera = gallery.pid == query.pid, gallery.camid == query.camid
        same = gallery.clothes == query.clothes
        good = person and not camera and (same if mode == "SC" else not same)
        junk = (person and camera) or (person and (not same if mode == "SC" else same))
        return GOOD if good else JUNK if junk or gallery.pid == -1 else BAD

    return judge


def of_cameras(queries, galleries):
    """Simple-CCReID's loaders of PRCC and VC-Clothes: other cameras are never loaded."""

    def judge(query, gallery):
        if query.camid not in queries:
            return JUNK
        return torchreid(query, gallery) if gallery.camid in galleries else JUNK

    return judge


def sysu(galleries):
    """evaluation_SYSU_MM01.m: cam_id = [1 2 2 4 5 6], and items of the probe's cam_id are removed, of any person."""
    cam_id = [1, 2, 2, 4, 5, 6]

    def judge(query, gallery):
        if query.camid not in (3, 6) or gallery.camid not in galleries or gallery.pid == -1:
            return JUNK
        if cam_id[gallery.camid - 1] == cam_id[query.camid - 1]:
            return JUNK
        return GOOD if gallery.pid == query.pid else BAD

    return judge


def listed(good, junk):
    """Lists of gallery rows of each query: compute_ap of Oxford, revisitop evaluate.py, GLDv2's retrieval solution."""

    def judge(query, gallery):
        if any(gallery.row in query.lists[name] for name in good):
            return GOOD
        return JUNK if any(gallery.row in query.lists[name] for name in junk) else BAD

    return judge


class Draw(NamedTuple):
    """Some rows of each pid: of each pid and camera of the gallery or of the queries, or with the rest as queries."""

    repeats: int
    per_identity: int
    kind: str = ""
    seed: int = 0

    @property
    def per_camera(self) -> bool:
        return self.kind in ("camera", "queries")


@dataclass(frozen=True)
class Code:
    """A published code: `judge` an item; `zero` counts queries without a match as 0; `groups` by metric or for all.

    `draw` is how many galleries are drawn, how many rows of each pid, and of which groups; of `galleries` cameras.
    """

    judge: object
    zero: bool = False
    group: str | None = None
    cmc_alone: bool = False
    galleries: tuple[int, ...] | None = None
    draw: Draw | None = None


_REVISITED = {
    "easy": (["easy"], ["hard", "junk"]),
    "medium": (["easy", "hard"], ["junk"]),
    "hard": (["hard"], ["easy", "junk"]),
}
CODES = {
    **dict.fromkeys(("market1501", "dukemtmc", "msmt17", "cuhk03_np", "mars", "ag_reid", "veri776"), Code(torchreid)),
    **dict.fromkeys(("ltcc_general", "vc_clothes_all"), Code(torchreid)),
    **{f"{name}_matlab": Code(torchreid, zero=True) for name in ("market1501", "cuhk03_np", "mars", "veri776")},
    "cuhk03_100": Code(torchreid),
    **dict.fromkeys(("cuhk_pedes", "last", "regdb", "in_shop", "ukbench"), Code(every_camera)),
    **dict.fromkeys(("gldv2_recognition", "wildlife_open"), Code(every_camera)),
    **dict.fromkeys((f"vehicleid_{size}" for size in (800, 1600, 2400)), Code(every_camera, draw=Draw(10, 1, "rest"))),
    **dict.fromkeys((f"veri_wild_{size}" for size in ("small", "medium", "large")), Code(every_camera)),
    **dict.fromkeys((f"veri_wild_{size}_cross_camera" for size in ("small", "medium", "large")), Code(torchreid)),
    "ltcc_changed": Code(clothes("CC")),
    "ltcc_same": Code(clothes("SC")),
    **{
        f"prcc_{which}{shot}": Code(of_cameras([camera], [1]), galleries=(1,), draw=Draw(10, 1) if shot else None)
        for which, camera in (("same", 2), ("changed", 3))
        for shot in ("", "_single_shot")
    },
    "vc_clothes_same": Code(of_cameras([2, 3], [2, 3])),
    "vc_clothes_changed": Code(of_cameras([3, 4], [3, 4])),
    **{
        f"sysu_mm01_{search}_{shot}": Code(
            sysu(cameras), group="pid", cmc_alone=True, galleries=cameras, draw=Draw(10, shots, "camera")
        )
        for search, cameras in (("all", (1, 2, 4, 5)), ("indoor", (1, 2)))
        for shot, shots in (("single", 1), ("multi", 10))
    },
    "llcm_vis_to_ir": Code(torchreid, group="pid", cmc_alone=True, draw=Draw(10, 1, "queries")),
    "llcm": Code(torchreid, group="pid", cmc_alone=True, draw=Draw(10, 1, "camera")),
    "wildlife_closed": Code(every_camera, group="pid", cmc_alone=True),
    "veri776_image_to_track": Code(torchreid, group="tracklet"),
    **dict.fromkeys(("sop", "cub200", "holidays"), Code(without_itself)),
    **dict.fromkeys(("oxford5k", "paris6k"), Code(listed(["good", "ok"], ["junk"]))),
    **{f"revisitop_{level}": Code(listed(*lists)) for level, lists in _REVISITED.items()},
    "gldv2": Code(listed(["ok"], ["junk"])),
}  # fmt: skip


def published(code, queries, gallery, distances, metrics):
    """Values of metrics by the rules of a code; `distances` are of shape (n_query, n_gallery)."""
    totals, n_counted = dict.fromkeys(metrics, 0.0), 0
    for query, row in zip(queries, distances, strict=True):
        kinds = [code.judge(query, item) for item in gallery]
        order = sorted((place for place, kind in enumerate(kinds) if kind != JUNK), key=lambda at: (row[at], at))
        if not any(kinds[at] == GOOD for at in order):
            n_counted += code.zero
            continue
        n_counted += 1
        items = [place for place, at in enumerate(order, start=1) if kinds[at] == GOOD]
        groups = (
            _ranks_of_groups(order, kinds, [getattr(item, code.group) for item in gallery]) if code.group else items
        )
        for name in metrics:
            if name.startswith("CMC_single_shot"):
                flags = [kind == GOOD for kind in kinds], [kind == JUNK for kind in kinds]
                k = int(name.partition("@")[2])
                totals[name] += float(expected_curve(row, *flags, [item.pid for item in gallery], k)[k - 1])
            else:
                grouped = not code.cmc_alone or name.startswith("CMC@")
                totals[name] += value(name, groups if grouped else items)
    return {name: total / n_counted for name, total in totals.items()}


def _ranks_of_groups(order, kinds, labels):
    """Places of groups with a good item in the list of groups, each where it occurs first."""
    heads = list(dict.fromkeys(labels[at] for at in order))
    good = {labels[at] for at in order if kinds[at] == GOOD}
    return [place for place, label in enumerate(heads, start=1) if label in good]


def global_average_precision(queries, gallery, distances):
    """GlobalAveragePrecision of GLDv2: predictions are the nearest images, by score, then by key."""
    predictions = []
    for key, (query, row) in enumerate(zip(queries, distances, strict=True)):
        nearest = min((row[at], at) for at, item in enumerate(gallery) if item.pid != -1)
        predictions.append((nearest[0], key, gallery[nearest[1]].pid == query.pid))
    correct, total = 0, []
    for seen, (_, _, right) in enumerate(sorted(predictions), start=1):
        if right:
            correct += 1
            total.append(correct / seen)
    known = {item.pid for item in gallery}
    return math.fsum(total) / sum(query.pid in known for query in queries)


def balanced_accuracies(queries, gallery, distances, threshold):
    """BAKS and BAUS of wildlife-datasets: means over identities; a prediction not under the threshold is "new"."""
    shares = {True: {}, False: {}}
    known = {item.pid for item in gallery} - {-1}
    for query, row in zip(queries, distances, strict=True):
        distance, at = min((row[at], at) for at, item in enumerate(gallery) if item.pid != -1)
        predicted = gallery[at].pid if distance < threshold else "new"
        right = predicted == (query.pid if query.pid in known else "new")
        shares[query.pid in known].setdefault(query.pid, []).append(right)
    means = [[sum(each) / len(each) for each in shares[kind].values()] for kind in (True, False)]
    return [sum(each) / len(each) for each in means]
