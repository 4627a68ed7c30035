"""What one gallery item is to one query, protocol by protocol.

The verdict on a pair is given by `verdict`, which reads like the table of the protocols; everything else calls it pair
by pair.
"""

from __future__ import annotations

import numpy as np

PID_PROTOCOLS = (
    *("market1501", "market1501_matlab", "allshots", "cuhk03", "cuhk03_separate_cameras"),
    *("same_set", "no_cameras"),
)
LIST_PROTOCOLS = ("oxford", "revisitop_easy", "revisitop_medium", "revisitop_hard")
CAMERA_PROTOCOLS = PID_PROTOCOLS[:5]
# The CMC family of those that have another one than CMC.
CMC_FAMILY = {"allshots": "CMC_allshots", "cuhk03": "CMC_single_shot", "cuhk03_separate_cameras": "CMC_single_shot"}
TRAPEZOID_PROTOCOLS = ("market1501_matlab", *LIST_PROTOCOLS)
INVALID_COUNTS_AS_ZERO = ("market1501_matlab",)

# Which lists of the ground truth are relevant and which are junk.
_LISTS = {
    "oxford": (("good", "ok"), ("junk",)),
    "revisitop_easy": (("easy",), ("junk", "hard")),
    "revisitop_medium": (("easy", "hard"), ("junk",)),
    "revisitop_hard": (("hard",), ("junk", "easy")),
}


def verdict(protocol, query, i, gallery, j):
    """What gallery item `j` is to query `i` under a protocol of identities: "relevant", "junk" or "negative"."""
    same_pid = query.pids[i] == gallery.pids[j]
    # An unknown camera is not even that of another item of unknown camera.
    same_camera = query.camids is not None and query.camids[i] == gallery.camids[j] and query.camids[i] != -1
    if gallery.pids[j] == -1:
        return "junk"
    if protocol in ("market1501", "market1501_matlab", "allshots", "cuhk03"):
        if same_pid and same_camera:
            return "junk"
    elif protocol == "cuhk03_separate_cameras":
        if same_camera:
            return "junk"
    elif protocol == "same_set":
        if query.item_ids[i] == gallery.item_ids[j]:
            return "junk"
    elif protocol != "no_cameras":
        raise ValueError(protocol)
    return "relevant" if same_pid else "negative"


def verdict_of_lists(protocol, entry, j):
    """The same for a protocol of ground-truth lists; `entry` is what is listed for the query."""
    relevant, junk = _LISTS[protocol]
    if any(j in entry.get(name, ()) for name in relevant):
        return "relevant"
    return "junk" if any(j in entry.get(name, ()) for name in junk) else "negative"


def assign_relevance(query, gallery, protocol, ground_truth=None):
    """Who is relevant and who is junk: two (n_query, n_gallery) masks.

    `ground_truth` has one entry per query, for the protocols that need it.
    """
    relevant = np.zeros((len(query), len(gallery)), dtype=bool)
    junk = np.zeros((len(query), len(gallery)), dtype=bool)
    for i in range(len(query)):
        for j in range(len(gallery)):
            if protocol in LIST_PROTOCOLS:
                found = verdict_of_lists(protocol, ground_truth[i], j)
            else:
                found = verdict(protocol, query, i, gallery, j)
            relevant[i, j] = found == "relevant"
            junk[i, j] = found == "junk"
    return relevant, junk


def true_reasons(query, gallery, protocol, i, relevant, junk):
    """All reasons that apply to query `i` without a relevant item; {""} when it has one.

    `relevant` and `junk` are its rows of the masks.  More than one thing may be true at once.
    """
    if relevant.any():
        return {""}
    reasons = {"all_junk"} if junk.all() else set()
    if protocol in LIST_PROTOCOLS:
        return reasons | {"no_positive_in_gallery"}
    namesakes = gallery.pids == query.pids[i]
    if (namesakes & (gallery.pids == -1)).any():
        reasons.add("all_junk")
    labelled = namesakes & (gallery.pids != -1)
    if protocol in CAMERA_PROTOCOLS and labelled.any():
        reasons.add("only_same_camera_positives")
    else:
        reasons.add("no_positive_in_gallery")
    return reasons
